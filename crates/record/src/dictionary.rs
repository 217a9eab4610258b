//! The texts and structs of a segment, by number.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_model::vocab::{Comm, CpuSet};

use crate::flat::{STRUCT, Token};
use crate::shape::Column;

/// Texts, byte strings, and structs as lists of the names of their fields. A segment begins
/// with an empty dictionary; each frame adds to it.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    texts: Vec<Box<[u8]>>,
    /// The fields of each struct.
    structs: Vec<Range<Column>>,
    /// The names of the fields of all structs.
    fields: Vec<u32>,
}

impl Dictionary {
    pub(crate) fn text(&self, number: u64) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        self.texts.get(number).map(|text| &**text)
    }

    /// The columns of the fields of a struct.
    pub(crate) fn columns(&self, token: Token) -> Option<Range<Column>> {
        let number = token.checked_sub(STRUCT)?;
        self.structs.get(usize::from(number)).cloned()
    }

    /// The names of the fields of a struct.
    pub(crate) fn fields(&self, token: Token) -> Option<&[u32]> {
        let Range { start, end } = self.columns(token)?;
        self.fields.get(start as usize..end as usize)
    }

    /// Number of columns.
    pub(crate) fn column_count(&self) -> usize {
        // A value that is in no struct has a column too.
        self.fields.len().max(1)
    }

    pub(crate) fn texts(&self) -> &[Box<[u8]>] {
        &self.texts
    }

    /// The names of the fields of each struct from a number on.
    pub(crate) fn structs_from(&self, number: usize) -> impl ExactSizeIterator<Item = &[u32]> {
        let structs = self.structs.get(number..).unwrap_or_default().iter();
        structs.map(|fields| {
            let fields = fields.start as usize..fields.end as usize;
            self.fields.get(fields).unwrap_or_default()
        })
    }

    /// Number of structs.
    pub(crate) fn struct_count(&self) -> usize {
        self.structs.len()
    }

    pub(crate) fn add_text(&mut self, text: &[u8]) {
        self.texts.push(text.into());
    }

    /// Adds a struct; `None` if there are too many fields.
    pub(crate) fn add_struct(&mut self, fields: &[u32]) -> Option<()> {
        let start = Column::try_from(self.fields.len()).ok()?;
        let end = start.checked_add(Column::try_from(fields.len()).ok()?)?;
        self.fields.extend_from_slice(fields);
        self.structs.push(start..end);
        Some(())
    }
}

/// A struct by the address of its name and by its number of fields.
type Struct = (usize, usize);

/// A struct that is written as a row, without serde.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Row {
    Vm,
    RoleUse,
    Quota,
    Memory,
    Topology,
    MismatchTimes,
    VcpuInterrupts,
    Vcpu,
    Kvm,
    GuestPlace,
    HostPlace,
    VcpuCount,
    DirtyLogging,
    Features,
    Feature,
    Thread,
}

/// Number of kinds of rows.
const ROWS: usize = Row::Thread as usize + 1;

/// A dictionary that numbers what it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    pub(crate) dictionary: Dictionary,
    by_text: FxHashMap<Box<[u8]>, u32>,
    /// The last shared text with each number.
    held: Vec<Option<Arc<str>>>,
    /// Address and length of the last constant with each number.
    constants: Vec<Option<(usize, usize)>>,
    /// The last name of a thread with each number.
    comms: Vec<Option<Comm>>,
    /// The last set of CPUs with each number.
    cpu_sets: Vec<Option<Arc<CpuSet>>>,
    /// The number of the last new set of CPUs: most threads of a complete frame have it too.
    last_cpu_set: Option<u64>,
    by_struct: FxHashMap<Struct, Token>,
    structs: Vec<Struct>,
    /// The structs of rows, by the number of [`Row`].
    rows: [Option<Token>; ROWS],
    /// The names of the fields of all structs.
    fields: Vec<&'static str>,
    /// Length of all texts, bytes.
    pub(crate) bytes: usize,
}

impl Numbered {
    /// The number of a text, which is probably this one.
    #[inline]
    pub(crate) fn text(&mut self, text: &[u8], probably: Option<u64>) -> u64 {
        if let Some(number) = probably
            && self.dictionary.text(number) == Some(text)
        {
            return number;
        }
        self.number(text).into()
    }

    /// The number of a shared text, which is probably this one. The last one is held, so its
    /// place in memory has no other text and need not be compared.
    #[inline]
    pub(crate) fn shared(&mut self, text: &Arc<str>, probably: Option<u64>) -> u64 {
        if let Some(number) = probably
            && known(&self.held, number).is_some_and(|held| Arc::ptr_eq(held, text))
        {
            return number;
        }
        let number = self.number(text.as_bytes());
        remember(&mut self.held, number, Arc::clone(text));
        number.into()
    }

    /// The number of the list of a set of CPUs, which is probably this one.
    #[inline]
    pub(crate) fn cpu_set(&mut self, set: &Arc<CpuSet>, probably: Option<u64>) -> u64 {
        for number in [probably, self.last_cpu_set].into_iter().flatten() {
            if known(&self.cpu_sets, number)
                .is_some_and(|held| Arc::ptr_eq(held, set) || held == set)
            {
                return number;
            }
        }
        let number = self.number(set.to_string().as_bytes());
        remember(&mut self.cpu_sets, number, Arc::clone(set));
        self.last_cpu_set = Some(number.into());
        number.into()
    }

    /// The number of a name of a thread, which is probably this one.
    #[inline]
    pub(crate) fn comm(&mut self, name: Comm, probably: Option<u64>) -> u64 {
        if let Some(number) = probably
            && known(&self.comms, number) == Some(&name)
        {
            return number;
        }
        let number = self.number(name.as_bytes());
        remember(&mut self.comms, number, name);
        number.into()
    }

    /// The number of a constant, which is probably this one. A place has one constant of a
    /// length, so it is not compared.
    #[inline]
    pub(crate) fn constant(&mut self, text: &'static str, probably: Option<u64>) -> u64 {
        let place = (text.as_ptr().addr(), text.len());
        if let Some(number) = probably
            && known(&self.constants, number) == Some(&place)
        {
            return number;
        }
        let number = self.number(text.as_bytes());
        remember(&mut self.constants, number, place);
        number.into()
    }

    #[cold]
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        let number = u32::try_from(self.dictionary.texts.len()).unwrap_or(u32::MAX);
        self.dictionary.add_text(text);
        self.by_text.insert(text.into(), number);
        self.bytes += text.len();
        number
    }

    /// The struct with this name and number of fields, which is probably this one; `None` if
    /// it is new.
    #[inline]
    pub(crate) fn known(
        &self,
        name: &'static str,
        len: usize,
        probably: Option<Token>,
    ) -> Option<Token> {
        let wanted = (name.as_ptr().addr(), len);
        let number = probably.and_then(|token| token.checked_sub(STRUCT));
        let is_wanted = |number| self.structs.get(usize::from(number)) == Some(&wanted);
        if number.is_some_and(is_wanted) {
            return probably;
        }
        self.by_struct.get(&wanted).copied()
    }

    /// Whether this is the field of a known struct at this column.
    #[inline]
    pub(crate) fn is_field(&self, column: usize, name: &'static str) -> bool {
        let field = self.fields.get(column);
        field.is_some_and(|field| std::ptr::eq(*field, name) || *field == name)
    }

    /// The token of a row with these fields; `None` if there are too many structs.
    #[inline]
    pub(crate) fn row(&mut self, row: Row, fields: &[&'static str]) -> Option<Token> {
        match self.rows.get(row as usize)? {
            Some(token) => Some(*token),
            None => self.learn_row(row, fields),
        }
    }

    #[cold]
    fn learn_row(&mut self, row: Row, fields: &[&'static str]) -> Option<Token> {
        let token = self.add(fields)?;
        self.structs.push((0, 0));
        *self.rows.get_mut(row as usize)? = Some(token);
        Some(token)
    }

    /// Adds a struct; `None` if there are too many.
    pub(crate) fn learn(
        &mut self,
        name: &'static str,
        len: usize,
        fields: &[&'static str],
    ) -> Option<Token> {
        let token = self.add(fields)?;
        self.structs.push((name.as_ptr().addr(), len));
        self.by_struct.insert((name.as_ptr().addr(), len), token);
        Some(token)
    }

    fn add(&mut self, fields: &[&'static str]) -> Option<Token> {
        let number = u16::try_from(self.structs.len()).ok()?;
        let token = STRUCT.checked_add(number)?;
        let numbers: Vec<u32> = fields
            .iter()
            .map(|field| self.number(field.as_bytes()))
            .collect();
        self.dictionary.add_struct(&numbers)?;
        self.fields.extend_from_slice(fields);
        Some(token)
    }
}

/// What is known with a number.
#[inline]
fn known<T>(all: &[Option<T>], number: u64) -> Option<&T> {
    all.get(usize::try_from(number).ok()?)?.as_ref()
}

/// Remembers what has a number.
fn remember<T: Clone>(all: &mut Vec<Option<T>>, number: u32, what: T) {
    let at = number as usize;
    all.resize(all.len().max(at + 1), None);
    if let Some(known) = all.get_mut(at) {
        *known = Some(what);
    }
}

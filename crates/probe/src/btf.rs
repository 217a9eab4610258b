//! Parser for type information (BTF) of the kernel and of objects, limited to what this
//! crate needs (`Documentation/bpf/btf.rst`).

/// `BTF_MAGIC`, `include/uapi/linux/btf.h`.
const MAGIC: u16 = 0xeb9f;

/// The kinds of types that this crate needs (`include/uapi/linux/btf.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    #[cfg(feature = "aya")]
    Var = 14,
    DataSec = 15,
}

/// Size of the data after the three words of a type, bytes, by its kind and number of
/// entries.
fn extra(kind: u8, entries: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * entries,
        // ENUM, FUNC_PROTO
        6 | 13 => 8 * entries,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn kind_of(info: u32) -> u8 {
    (info >> 24 & 0x1f) as u8
}

/// Type information: a sequence of types.
pub(crate) struct Btf<'b> {
    #[cfg(feature = "aya")]
    begin: usize,
    types: &'b [u8],
    strings: Strings<'b>,
}

/// Names. A module's continue after the kernel's.
#[derive(Debug, Clone, Copy)]
struct Strings<'b> {
    base: &'b [u8],
    own: &'b [u8],
}

impl<'b> Strings<'b> {
    /// The names that contain the one at `at`, and its offset in them.
    fn place(self, at: u32) -> (&'b [u8], usize) {
        let at = at as usize;
        match at.checked_sub(self.base.len()) {
            Some(at) => (self.own, at),
            None => (self.base, at),
        }
    }

    fn text(self, at: u32) -> &'b str {
        let (names, at) = self.place(at);
        text(names, at)
    }

    /// Whether the name at `at` is `name`. Decoding each name of a kernel takes ten times
    /// as long.
    fn is(self, at: u32, name: &str) -> bool {
        let (names, at) = self.place(at);
        let found = names.get(at..).unwrap_or_default();
        let rest = found.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// A type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type<'b> {
    /// Its id, from 1.
    pub(crate) id: u32,
    info: u32,
    name: u32,
    /// Its size in bytes, or the id of the type that it refers to.
    pub(crate) size_or_id: u32,
    /// Its offset.
    #[cfg(feature = "aya")]
    pub(crate) offset: usize,
    entries: &'b [u8],
    strings: Strings<'b>,
}

/// A member of a structure or an entry of a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'b> {
    /// Empty if it has no name.
    pub(crate) name: &'b str,
    /// Id of its type.
    pub(crate) type_id: u32,
    /// Its offset in bits; for a bit field, bits 24 and up are its length.
    pub(crate) offset_bits: u32,
}

impl<'b> Btf<'b> {
    /// `None` if the bytes are not valid type information.
    pub(crate) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (magic, _) = bytes.split_first_chunk()?;
        if u16::from_ne_bytes(*magic) != MAGIC {
            return None;
        }
        let part = |at| -> Option<&'b [u8]> {
            let begin = (word(bytes, 4)? as usize).checked_add(word(bytes, at)? as usize)?;
            let end = begin.checked_add(word(bytes, at + 4)? as usize)?;
            bytes.get(begin..end)
        };
        Some(Self {
            #[cfg(feature = "aya")]
            begin: (word(bytes, 4)? + word(bytes, 8)?) as usize,
            types: part(8)?,
            strings: Strings {
                base: &[],
                own: part(16)?,
            },
        })
    }

    /// Parses a module's type information, whose names and types continue after those of
    /// the kernel, `base` (`btf_parse_module`, `kernel/bpf/btf.c`). Type ids are not
    /// followed.
    pub(crate) fn parse_module(bytes: &'b [u8], base: &Self) -> Option<Self> {
        let mut module = Self::parse(bytes)?;
        module.strings.base = base.strings.own;
        Some(module)
    }

    /// Offset of the types, from the header, bytes.
    #[cfg(feature = "aya")]
    pub(crate) fn begin(&self) -> usize {
        self.begin
    }

    /// Returns all types in order, up to the first invalid one.
    pub(crate) fn types(&self) -> impl Iterator<Item = Type<'b>> + use<'b> {
        let (all, strings) = (self.types, self.strings);
        let mut offset = 0;
        let mut id = 0;
        std::iter::from_fn(move || {
            let at = all.get(offset..)?;
            let (name, info, size_or_id) = (word(at, 0)?, word(at, 4)?, word(at, 8)?);
            let extra = extra(kind_of(info), (info & 0xffff) as usize)?;
            id += 1;
            let one = Type {
                id,
                info,
                name,
                size_or_id,
                #[cfg(feature = "aya")]
                offset,
                entries: at.get(12..12 + extra)?,
                strings,
            };
            offset += 12 + extra;
            Some(one)
        })
    }

    /// Returns the first type of this name and kind.
    pub(crate) fn find(&self, kind: Kind, name: &str) -> Option<Type<'b>> {
        self.types()
            .find(|one| one.is(kind) && self.strings.is(one.name, name))
    }
}

impl<'b> Type<'b> {
    fn kind(&self) -> u8 {
        kind_of(self.info)
    }

    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind() == kind as u8
    }

    /// Number of its entries, or the linkage of a function.
    #[cfg(all(test, feature = "aya"))]
    pub(crate) fn vlen(&self) -> u32 {
        self.info & 0xffff
    }

    /// Empty if it has no name.
    pub(crate) fn name(&self) -> &'b str {
        self.strings.text(self.name)
    }

    /// Returns the fields of a structure or union.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member<'b>> {
        let strings = self.strings;
        let (entries, _) = self.entries.as_chunks::<12>();
        let entries = entries
            .iter()
            .filter_map(|entry| Some((entry, word(entry, 0)?)));
        entries.filter_map(move |(entry, name)| {
            Some(Member {
                name: strings.text(name),
                type_id: word(entry, 4)?,
                offset_bits: word(entry, 8)?,
            })
        })
    }

    /// Returns the type ids of a section's variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = u32> {
        let (entries, _) = self.entries.as_chunks::<12>();
        entries.iter().filter_map(|entry| word(entry, 0))
    }

    /// Returns the names of an enumeration's values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &'b str> {
        let strings = self.strings;
        let (entries, _) = self.entries.as_chunks::<8>();
        let names = entries.iter().filter_map(|entry| word(entry, 0));
        names.map(move |name| strings.text(name))
    }

    /// Returns the type id of an array's elements, and their number.
    pub(crate) fn array(&self) -> Option<(u32, u32)> {
        Some((word(self.entries, 0)?, word(self.entries, 8)?))
    }

    /// The encoding of an integer (`BTF_INT_*`), and its bits.
    fn int(&self) -> Option<(char, u32)> {
        let word = word(self.entries, 0)?;
        let kind = match word >> 24 & 0xf {
            0 => 'u',
            1 => 'i',
            2 => 'c',
            _ => 'b',
        };
        Some((kind, word & 0xff))
    }
}

/// Types by their ids, which start at 1.
pub(crate) struct Index<'b>(Vec<Type<'b>>);

impl<'b> Index<'b> {
    pub(crate) fn of(btf: &Btf<'b>) -> Self {
        Self(btf.types().collect())
    }

    pub(crate) fn get(&self, id: u32) -> Option<Type<'b>> {
        self.0.get(id.checked_sub(1)? as usize).copied()
    }

    /// Resolves typedefs and qualifiers.
    pub(crate) fn skip_names(&self, id: u32) -> Option<Type<'b>> {
        const NAMES: [Kind; 4] = [Kind::Typedef, Kind::Volatile, Kind::Const, Kind::Restrict];
        let mut one = self.get(id)?;
        while NAMES.iter().any(|kind| one.is(*kind)) {
            one = self.get(one.size_or_id)?;
        }
        Some(one)
    }

    /// Returns the type that a pointer points to.
    pub(crate) fn pointed(&self, id: u32) -> Option<Type<'b>> {
        let pointer = self.get(id).filter(|one| one.is(Kind::Ptr))?;
        self.skip_names(pointer.size_or_id)
    }

    /// Size of a value of this type, bytes.
    pub(crate) fn size(&self, one: Type<'b>) -> Option<u32> {
        if let Some((element, count)) = one.is(Kind::Array).then(|| one.array()).flatten() {
            return self.size(self.skip_names(element)?)?.checked_mul(count);
        }
        if one.is(Kind::Ptr) {
            return Some(8);
        }
        Some(one.size_or_id)
    }

    /// Describes a type as text: all fields with their names, offsets and types, down to
    /// integers.
    pub(crate) fn describe(&self, one: Type<'b>) -> String {
        let named = |id| self.skip_names(id).map(|one| self.describe(one));
        if let Some((kind, bits)) = one.is(Kind::Int).then(|| one.int()).flatten() {
            format!("{kind}{bits}")
        } else if let Some((element, count)) = one.is(Kind::Array).then(|| one.array()).flatten() {
            format!("{}[{count}]", named(element).unwrap_or_default())
        } else if one.is(Kind::Struct) || one.is(Kind::Union) {
            let fields = one.members().map(|field| {
                let within = named(field.type_id).unwrap_or_default();
                format!("{}@{}:{within},", field.name, field.offset_bits)
            });
            format!("{{{}}}{}", fields.collect::<String>(), one.size_or_id)
        } else {
            format!("kind {}", one.kind())
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn text(strings: &[u8], at: usize) -> &str {
    let bytes = strings.get(at..).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = bytes.get(..end.unwrap_or(0)).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}

//! The texts and structs of a segment, by number.

use rustc_hash::FxHashMap;

use crate::flat::{STRUCT, Token};

/// Texts, byte strings, and structs as lists of the names of their fields. A segment begins
/// with an empty dictionary; each frame adds to it.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    texts: Vec<Box<[u8]>>,
    structs: Vec<Box<[u32]>>,
}

impl Dictionary {
    pub(crate) fn text(&self, number: u64) -> Option<&[u8]> {
        let number = usize::try_from(number).ok()?;
        self.texts.get(number).map(|text| &**text)
    }

    /// The names of the fields of a struct.
    pub(crate) fn fields(&self, token: Token) -> Option<&[u32]> {
        let number = token.checked_sub(STRUCT)?;
        self.structs.get(usize::from(number)).map(|names| &**names)
    }

    pub(crate) fn texts(&self) -> &[Box<[u8]>] {
        &self.texts
    }

    pub(crate) fn structs(&self) -> &[Box<[u32]>] {
        &self.structs
    }

    pub(crate) fn add_text(&mut self, text: &[u8]) {
        self.texts.push(text.into());
    }

    pub(crate) fn add_struct(&mut self, fields: &[u32]) {
        self.structs.push(fields.into());
    }
}

/// Number of texts whose places are remembered.
const PLACES: usize = 8192;

/// Number of constants whose places are remembered: the names of enums' variants.
const CONSTANTS: usize = 251;

/// A dictionary that numbers what it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    pub(crate) dictionary: Dictionary,
    by_text: FxHashMap<Box<[u8]>, u32>,
    /// Address and number of texts that were looked up before.
    by_place: Vec<(usize, u32)>,
    /// Address, length and number of constants.
    by_constant: Vec<((usize, usize), u32)>,
    by_struct: FxHashMap<(usize, usize), Token>,
    /// The names of the fields of each struct.
    fields: Vec<Box<[&'static str]>>,
    /// Length of all texts, bytes.
    pub(crate) bytes: usize,
}

impl Numbered {
    /// The number of a text. Constants and names that readings share keep their place in
    /// memory, so a text is first looked for by its place and compared.
    pub(crate) fn text(&mut self, text: &[u8]) -> u32 {
        let address = text.as_ptr().addr();
        let slot = (address ^ (address >> 12)) % PLACES;
        if let Some((at, number)) = self.by_place.get(slot).copied()
            && at == address
            && self
                .dictionary
                .texts
                .get(number as usize)
                .is_some_and(|known| **known == *text)
        {
            return number;
        }
        let number = self.number(text);
        self.by_place.resize(PLACES, (0, 0));
        if let Some(place) = self.by_place.get_mut(slot) {
            *place = (address, number);
        }
        number
    }

    /// The number of a constant, which is not compared: a place has one constant of a length.
    pub(crate) fn constant(&mut self, text: &'static str) -> u32 {
        let slot = text.as_ptr().addr() % CONSTANTS;
        let place = (text.as_ptr().addr(), text.len());
        if let Some((at, number)) = self.by_constant.get(slot)
            && *at == place
        {
            return *number;
        }
        let number = self.number(text.as_bytes());
        self.by_constant.resize(CONSTANTS, ((0, 0), 0));
        if let Some(known) = self.by_constant.get_mut(slot) {
            *known = (place, number);
        }
        number
    }

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

    /// The struct with this name and number of fields; `None` if it is new.
    pub(crate) fn known(&self, name: &'static str, len: usize) -> Option<Token> {
        self.by_struct.get(&(name.as_ptr().addr(), len)).copied()
    }

    /// Whether this is the field of a known struct at this index.
    pub(crate) fn is_field(&self, of: Token, index: usize, name: &'static str) -> bool {
        let fields = self.fields.get(usize::from(of - STRUCT));
        let field = fields.and_then(|fields| fields.get(index));
        field.is_some_and(|field| std::ptr::eq(*field, name) || *field == name)
    }

    /// Adds a struct; `None` if there are too many.
    pub(crate) fn learn(
        &mut self,
        name: &'static str,
        len: usize,
        fields: Vec<&'static str>,
    ) -> Option<Token> {
        let number = u16::try_from(self.fields.len()).ok()?;
        let token = STRUCT.checked_add(number)?;
        let numbers: Vec<u32> = fields
            .iter()
            .map(|field| self.text(field.as_bytes()))
            .collect();
        self.dictionary.add_struct(&numbers);
        self.fields.push(fields.into());
        self.by_struct.insert((name.as_ptr().addr(), len), token);
        Some(token)
    }
}

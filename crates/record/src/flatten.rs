//! Makes any serializable value flat.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::ser::{
    Error, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    SerializeTupleStruct, Serializer,
};

use crate::ahead::NextVm;
use crate::dictionary::Numbered;
use crate::flat::{
    BOOL, BYTES, END, FLOAT, Flat, MAP, MILLIONTHS, NULL, SEQ, SIGNED, STRUCT, TEXT, Token,
    UNSIGNED, millionths,
};
use crate::flattened::Flattened;

/// A value of a kind that a recording does not have: an enum with data, or a struct whose
/// fields vary.
#[derive(Debug, thiserror::Error)]
#[error("cannot record a value: {0}")]
pub struct Unsupported(pub(crate) Box<str>);

impl Error for Unsupported {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string().into())
    }
}

fn unsupported<T>(what: &str) -> Result<T, Unsupported> {
    Err(Unsupported(what.into()))
}

/// Writes values.
pub(crate) struct Flatten<'a> {
    pub(crate) to: &'a mut Flattened,
    /// The value before, which probably resembles this one.
    before: &'a Flat,
    pub(crate) names: &'a mut Numbered,
    pub(crate) ahead: NextVm<'a>,
}

impl<'a> Flatten<'a> {
    /// Replaces `to` by the next value.
    pub(crate) fn of(
        to: &'a mut Flattened,
        before: &'a Flat,
        names: &'a mut Numbered,
        ahead: NextVm<'a>,
    ) -> Self {
        to.clear();
        Self {
            to,
            before,
            names,
            ahead,
        }
    }

    /// Adds a token with its cell.
    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "serializers return it")]
    pub(crate) fn put(&mut self, token: Token, cell: u64) -> Done {
        self.to.tokens.push(token);
        self.to.cells.push(cell);
        Ok(())
    }

    /// Adds a token without a cell.
    #[inline]
    pub(crate) fn put_bare(&mut self, token: Token) {
        self.to.tokens.push(token);
    }

    /// The cell of the value before at a place.
    #[inline]
    pub(crate) fn probably(&self, at: usize) -> Option<u64> {
        self.before.cells.get(at).copied()
    }

    /// The next cell of the value before.
    #[inline]
    fn next_probably(&self) -> Option<u64> {
        self.probably(self.to.cells.len())
    }

    /// Adds a constant.
    #[inline]
    pub(crate) fn put_constant(&mut self, text: &'static str) -> Done {
        let number = self.names.constant(text, self.next_probably());
        self.put(TEXT, number)
    }

    /// Adds a text that readings share.
    #[inline]
    pub(crate) fn put_shared_text(&mut self, text: &Arc<str>) -> Done {
        let number = self.names.shared(text, self.next_probably());
        self.put(TEXT, number)
    }

    /// Adds a text.
    #[inline]
    pub(crate) fn put_text(&mut self, token: Token, text: &[u8]) -> Done {
        let number = self.names.text(text, self.next_probably());
        self.put(token, number)
    }
}

pub(crate) type Done = Result<(), Unsupported>;

/// The token and the cell of a floating-point number.
#[inline]
pub(crate) fn float(value: f64) -> (Token, u64) {
    match millionths(value) {
        Some(millionths) => (MILLIONTHS, millionths.cast_unsigned()),
        None => (FLOAT, value.to_bits()),
    }
}

impl<'s, 'a> Serializer for &'s mut Flatten<'a> {
    type Ok = ();
    type Error = Unsupported;
    type SerializeSeq = Row<'s, 'a>;
    type SerializeTuple = Row<'s, 'a>;
    type SerializeTupleStruct = Row<'s, 'a>;
    type SerializeTupleVariant = Impossible<(), Unsupported>;
    type SerializeMap = Row<'s, 'a>;
    type SerializeStruct = Fields<'s, 'a>;
    type SerializeStructVariant = Impossible<(), Unsupported>;

    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Done {
        self.put(BOOL, value.into())
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Done {
        self.put(SIGNED, value.cast_unsigned())
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Done {
        self.put(UNSIGNED, value)
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.serialize_f64(value.into())
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Done {
        let (token, cell) = float(value);
        self.put(token, cell)
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, text: &str) -> Done {
        self.put_text(TEXT, text.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, bytes: &[u8]) -> Done {
        self.put_text(BYTES, bytes)
    }

    #[inline]
    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> Done {
        self.put(NULL, 0)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    #[inline]
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.put_constant(variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Done {
        unsupported(name)
    }

    #[inline]
    fn serialize_seq(self, _: Option<usize>) -> Result<Row<'s, 'a>, Unsupported> {
        self.put_bare(SEQ);
        Ok(Row(self))
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Row<'s, 'a>, Unsupported> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Row<'s, 'a>, Unsupported> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Unsupported> {
        unsupported(name)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Row<'s, 'a>, Unsupported> {
        self.put_bare(MAP);
        Ok(Row(self))
    }

    #[inline]
    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Fields<'s, 'a>, Unsupported> {
        let place = self.to.tokens.len();
        let probably = self.before.shape.tokens.get(place).copied();
        let known = self.names.known(name, len, probably);
        let fields = known.and_then(|token| self.names.dictionary.columns(token));
        self.put_bare(known.unwrap_or(STRUCT));
        Ok(Fields {
            to: self,
            name,
            len,
            place,
            known: fields.map(|fields| fields.start as usize),
            index: 0,
            new: Vec::new(),
        })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Unsupported> {
        unsupported(name)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Done {
        self.serialize_str(&fmt::format(format_args!("{value}")))
    }
}

/// A sequence or a map that is being written.
pub(crate) struct Row<'s, 'a>(&'s mut Flatten<'a>);

impl Row<'_, '_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut *self.0)
    }

    fn close(self) {
        self.0.put_bare(END);
    }
}

impl SerializeSeq for Row<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.add(value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

impl SerializeTuple for Row<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.add(value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

impl SerializeTupleStruct for Row<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.add(value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

impl SerializeMap for Row<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.add(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.add(value)
    }

    fn end(self) -> Done {
        self.close();
        Ok(())
    }
}

/// A struct that is being written.
pub(crate) struct Fields<'s, 'a> {
    to: &'s mut Flatten<'a>,
    name: &'static str,
    len: usize,
    /// Place of its token.
    place: usize,
    /// The column of its first field; `None` if the struct is new.
    known: Option<usize>,
    index: usize,
    /// The fields so far of a struct that is new.
    new: Vec<&'static str>,
}

impl SerializeStruct for Fields<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Done {
        match self.known {
            Some(first) if !self.to.names.is_field(first + self.index, key) => {
                return unsupported(self.name);
            }
            Some(_) => {}
            None => self.new.push(key),
        }
        self.index += 1;
        value.serialize(&mut *self.to)
    }

    fn skip_field(&mut self, _: &'static str) -> Done {
        Ok(())
    }

    fn end(self) -> Done {
        if self.index != self.len {
            return unsupported(self.name);
        }
        if self.known.is_none() {
            let token = self.to.names.learn(self.name, self.len, &self.new);
            let token = token.ok_or_else(|| Unsupported("too many structs".into()))?;
            if let Some(place) = self.to.to.tokens.get_mut(self.place) {
                *place = token;
            }
        }
        Ok(())
    }
}

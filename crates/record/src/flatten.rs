//! Makes any serializable value flat.

use std::fmt::{self, Display};

use serde::ser::{
    Error, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    SerializeTupleStruct, Serializer,
};

use crate::dictionary::Numbered;
use crate::flat::{
    BOOL, BYTES, END, FLOAT, MAP, MILLIONTHS, NULL, SEQ, SIGNED, STRUCT, TEXT, Token, UNSIGNED,
    millionths,
};
use crate::update::Update;

/// A value of a kind that a recording does not have: an enum with data, or a struct whose
/// fields vary.
#[derive(Debug, thiserror::Error)]
#[error("cannot record a value: {0}")]
pub struct Unsupported(String);

impl Error for Unsupported {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

fn unsupported<T>(what: &str) -> Result<T, Unsupported> {
    Err(Unsupported(what.to_owned()))
}

/// Writes `value` to `flat`.
pub(crate) fn flatten<T: Serialize>(
    value: &T,
    names: &mut Numbered,
    flat: Update<'_>,
) -> Result<(), Unsupported> {
    let mut to = Flatten { flat, names };
    value.serialize(&mut to)?;
    to.flat.finish();
    Ok(())
}

struct Flatten<'a> {
    flat: Update<'a>,
    names: &'a mut Numbered,
}

type Done = Result<(), Unsupported>;

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

    fn serialize_bool(self, value: bool) -> Done {
        self.flat.put(BOOL, value.into());
        Ok(())
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

    fn serialize_i64(self, value: i64) -> Done {
        self.flat.put(SIGNED, value.cast_unsigned());
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        self.flat.put(UNSIGNED, value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Done {
        match millionths(value) {
            Some(millionths) => self.flat.put(MILLIONTHS, millionths.cast_unsigned()),
            None => self.flat.put(FLOAT, value.to_bits()),
        }
        Ok(())
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Done {
        let number = self.names.text(text.as_bytes());
        self.flat.put(TEXT, number.into());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Done {
        let number = self.names.text(bytes);
        self.flat.put(BYTES, number.into());
        Ok(())
    }

    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.flat.put(NULL, 0);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        let number = self.names.constant(variant);
        self.flat.put(TEXT, number.into());
        Ok(())
    }

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

    fn serialize_seq(self, _: Option<usize>) -> Result<Row<'s, 'a>, Unsupported> {
        self.flat.put_bare(SEQ);
        Ok(Row(self))
    }

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
        self.flat.put_bare(MAP);
        Ok(Row(self))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Fields<'s, 'a>, Unsupported> {
        let known = self.names.known(name, len);
        let place = match known {
            Some(token) => {
                self.flat.put_bare(token);
                0
            }
            None => self.flat.put_new(STRUCT),
        };
        Ok(Fields {
            to: self,
            name,
            len,
            known,
            place,
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
struct Row<'s, 'a>(&'s mut Flatten<'a>);

impl Row<'_, '_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        value.serialize(&mut *self.0)
    }

    fn close(self) {
        self.0.flat.put_bare(END);
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
struct Fields<'s, 'a> {
    to: &'s mut Flatten<'a>,
    name: &'static str,
    len: usize,
    known: Option<Token>,
    /// Place of its token if it is new.
    place: usize,
    index: usize,
    /// The fields so far of a struct that is new.
    new: Vec<&'static str>,
}

impl SerializeStruct for Fields<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Done {
        match self.known {
            Some(token) if !self.to.names.is_field(token, self.index, key) => {
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
            let token = self.to.names.learn(self.name, self.len, self.new);
            let token = token.ok_or_else(|| Unsupported("too many structs".to_owned()))?;
            self.to.flat.set_new(self.place, token);
        }
        Ok(())
    }
}

//! Makes a value of a flat one.

use std::fmt::Display;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::dictionary::Dictionary;
use crate::flat::{
    BOOL, BYTES, END, FLOAT, Flat, MAP, MILLIONTHS, NULL, REPEATED, SEQ, SIGNED, TEXT, THOUSANDTHS,
    Token, UNSIGNED, has_cell, of_millionths, of_thousandths,
};

/// The value is not one of the expected type: another version wrote it.
#[derive(Debug, thiserror::Error)]
#[error("unknown structure: {0}")]
pub struct Unknown(String);

impl Error for Unknown {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

/// Deepest nesting. Snapshots have less than half of it.
const MAX_DEPTH: usize = 32;

/// The value of `flat`.
pub(crate) fn rebuild<'d, T: Deserialize<'d>>(
    flat: &'d Flat,
    names: &'d Dictionary,
) -> Result<T, Unknown> {
    let mut rebuild = Rebuild {
        tokens: &flat.shape.tokens,
        all: &flat.cells,
        cells: &flat.cells,
        names,
        depth: 0,
    };
    let value = T::deserialize(&mut rebuild)?;
    if rebuild.tokens.is_empty() && rebuild.cells.is_empty() {
        Ok(value)
    } else {
        Err(broken())
    }
}

fn broken() -> Unknown {
    Unknown("it ends too early or too late".to_owned())
}

/// What is left of a value.
struct Rebuild<'d> {
    tokens: &'d [Token],
    cells: &'d [u64],
    /// All cells.
    all: &'d [u64],
    names: &'d Dictionary,
    depth: usize,
}

impl<'d> Rebuild<'d> {
    fn peek(&self) -> Result<Token, Unknown> {
        self.tokens.first().copied().ok_or_else(broken)
    }

    fn token(&mut self) -> Result<Token, Unknown> {
        let token = self.tokens.split_off_first().ok_or_else(broken)?;
        Ok(*token)
    }

    fn cell(&mut self) -> Result<u64, Unknown> {
        let cell = self.cells.split_off_first().ok_or_else(broken)?;
        Ok(*cell)
    }

    /// The cell at a distance before the last one.
    fn earlier(&self, distance: u64) -> Option<u64> {
        let last = (self.all.len() - self.cells.len()).checked_sub(1)?;
        let at = last.checked_sub(usize::try_from(distance).ok()?)?;
        self.all.get(at).copied()
    }

    fn text(&self, number: u64) -> Result<&'d str, Unknown> {
        let text = self.names.text(number).ok_or_else(broken)?;
        std::str::from_utf8(text).map_err(|_| broken())
    }

    /// The value of a token with a cell.
    fn leaf<V: Visitor<'d>>(&mut self, token: Token, visitor: V) -> Result<V::Value, Unknown> {
        let cell = self.cell()?;
        match token {
            NULL => visitor.visit_unit(),
            BOOL => visitor.visit_bool(cell != 0),
            UNSIGNED => visitor.visit_u64(cell),
            REPEATED => visitor.visit_u64(self.earlier(cell).ok_or_else(broken)?),
            SIGNED => visitor.visit_i64(cell.cast_signed()),
            FLOAT => visitor.visit_f64(f64::from_bits(cell)),
            MILLIONTHS => visitor.visit_f64(of_millionths(cell.cast_signed())),
            THOUSANDTHS => visitor.visit_f64(of_thousandths(cell.cast_signed())),
            TEXT => visitor.visit_borrowed_str(self.text(cell)?),
            BYTES => visitor.visit_borrowed_bytes(self.names.text(cell).ok_or_else(broken)?),
            _ => Err(broken()),
        }
    }

    fn deeper(&mut self) -> Result<(), Unknown> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unknown("it is nested too deep".to_owned()));
        }
        Ok(())
    }
}

impl<'de> Deserializer<'de> for &mut Rebuild<'de> {
    type Error = Unknown;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unknown> {
        let token = self.token()?;
        if has_cell(token) {
            return self.leaf(token, visitor);
        }
        self.deeper()?;
        let value = match token {
            SEQ => {
                let mut row = Row::of(self);
                let value = visitor.visit_seq(&mut row)?;
                row.close().map(|()| value)
            }
            MAP => {
                let mut row = Row::of(self);
                let value = visitor.visit_map(&mut row)?;
                row.close().map(|()| value)
            }
            _ => {
                let fields = self.names.fields(token).ok_or_else(broken)?;
                let mut row = Fields {
                    from: &mut *self,
                    fields,
                };
                let value = visitor.visit_map(&mut row)?;
                if row.fields.is_empty() {
                    Ok(value)
                } else {
                    Err(broken())
                }
            }
        };
        self.depth -= 1;
        value
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unknown> {
        if self.peek()? == NULL {
            self.token()?;
            self.cell()?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unknown> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unknown> {
        match self.token()? {
            TEXT => {
                let cell = self.cell()?;
                visitor.visit_enum(Variant(self.text(cell)?))
            }
            _ => Err(broken()),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The rest of a sequence or a map.
struct Row<'r, 'd> {
    from: &'r mut Rebuild<'d>,
    is_closed: bool,
}

impl<'r, 'd> Row<'r, 'd> {
    fn of(from: &'r mut Rebuild<'d>) -> Self {
        Self {
            from,
            is_closed: false,
        }
    }

    fn next<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, Unknown> {
        if self.is_closed || self.from.peek()? == END {
            self.close()?;
            return Ok(None);
        }
        seed.deserialize(&mut *self.from).map(Some)
    }

    /// Reads the end, which a visitor of an array does not ask for.
    fn close(&mut self) -> Result<(), Unknown> {
        if !self.is_closed && self.from.token()? != END {
            return Err(broken());
        }
        self.is_closed = true;
        Ok(())
    }
}

impl<'d> SeqAccess<'d> for &mut Row<'_, 'd> {
    type Error = Unknown;

    fn next_element_seed<S: DeserializeSeed<'d>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unknown> {
        self.next(seed)
    }
}

impl<'d> MapAccess<'d> for &mut Row<'_, 'd> {
    type Error = Unknown;

    fn next_key_seed<S: DeserializeSeed<'d>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unknown> {
        self.next(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<S::Value, Unknown> {
        seed.deserialize(&mut *self.from)
    }
}

/// The rest of a struct.
struct Fields<'r, 'd> {
    from: &'r mut Rebuild<'d>,
    fields: &'d [u32],
}

impl<'d> MapAccess<'d> for &mut Fields<'_, 'd> {
    type Error = Unknown;

    fn next_key_seed<S: DeserializeSeed<'d>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unknown> {
        let Some(field) = self.fields.split_off_first() else {
            return Ok(None);
        };
        let name = self.from.text(u64::from(*field))?;
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<S::Value, Unknown> {
        seed.deserialize(&mut *self.from)
    }
}

/// The variant of an enum without data.
struct Variant<'d>(&'d str);

impl<'d> EnumAccess<'d> for Variant<'d> {
    type Error = Unknown;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'d>>(self, seed: S) -> Result<(S::Value, Self), Unknown> {
        let variant = seed.deserialize(BorrowedStrDeserializer::<Unknown>::new(self.0))?;
        Ok((variant, self))
    }
}

impl<'d> VariantAccess<'d> for Variant<'d> {
    type Error = Unknown;

    fn unit_variant(self) -> Result<(), Unknown> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'d>>(self, _: S) -> Result<S::Value, Unknown> {
        Err(broken())
    }

    fn tuple_variant<V: Visitor<'d>>(self, _: usize, _: V) -> Result<V::Value, Unknown> {
        Err(broken())
    }

    fn struct_variant<V: Visitor<'d>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Unknown> {
        Err(broken())
    }
}

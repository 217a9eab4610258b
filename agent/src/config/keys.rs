//! Mappings with a fixed set of keys: an unknown key is rejected with the nearest known
//! ones.
//!
//! The key is compared within the deserializer, so that the error contains the line.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use crate::nearest::nearest;

/// A struct, read from a mapping.
pub(crate) struct StrictKeys<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictKeys<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(Strict(deserializer)).map(Self)
    }
}

/// Deserializes an optional field of such a struct.
pub(crate) fn strict_keys<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let read = Option::<StrictKeys<T>>::deserialize(deserializer)?;
    Ok(read.map(|known| known.0))
}

/// Deserializes a key that must be one of `known`.
pub(crate) struct KnownKey<'k> {
    /// Kind of key for error messages, such as "threshold".
    pub(crate) what: &'static str,
    /// All valid keys.
    pub(crate) known: &'k [&'k str],
}

impl KnownKey<'_> {
    fn refusal(&self, key: &str) -> String {
        let what = self.what;
        let names = self.known.iter().map(|name| (*name).to_owned());
        let nearest = nearest(key, names.map(|name| (name.clone(), name)));
        if nearest.is_empty() {
            let all = self.known.join(", ");
            format!("unknown {what} {key:?}; known {what}s: {all}")
        } else {
            let nearest = nearest.join(", ");
            format!("unknown {what} {key:?}; nearest known {what}s: {nearest}")
        }
    }
}

impl<'de> DeserializeSeed<'de> for KnownKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.what)
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        if self.known.contains(&key) {
            Ok(key.to_owned())
        } else {
            Err(E::custom(self.refusal(key)))
        }
    }
}

/// Passes a struct on to the inner deserializer, with the names of its fields.
struct Strict<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = StrictVisitor { fields, visitor };
        self.0.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    // A derived struct uses no other method.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

struct StrictVisitor<V> {
    fields: &'static [&'static str],
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StrictVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<V::Value, M::Error> {
        self.visitor.visit_map(StrictMap {
            fields: self.fields,
            map,
        })
    }
}

struct StrictMap<M> {
    fields: &'static [&'static str],
    map: M,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for StrictMap<M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, M::Error> {
        let key = KnownKey {
            what: "key",
            known: self.fields,
        };
        let Some(key) = self.map.next_key_seed(key)? else {
            return Ok(None);
        };
        let key: StringDeserializer<M::Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, M::Error> {
        self.map.next_value_seed(seed)
    }
}

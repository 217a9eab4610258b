//! Names and sentences from closed sets: of sources, programs, VMMs, reasons.
//!
//! This agent has them as constants. A recording, or another agent, may have been written by
//! another version, so its names are kept as they are.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A name or a sentence from a closed set.
pub type Name = &'static str;

/// Number of different names that are kept. All versions together have some hundred.
const MAX_NAMES: usize = 4096;

/// Length of the longest name that is kept, bytes.
const MAX_BYTES: usize = 1024;

static READ: Mutex<BTreeSet<Name>> = Mutex::new(BTreeSet::new());

/// The name with this text, which lives as long as the program; `None` if it is too long or
/// if there are too many different ones.
pub fn kept(text: &str) -> Option<Name> {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = read.get(text) {
        return Some(name);
    }
    if text.len() > MAX_BYTES || read.len() >= MAX_NAMES {
        return None;
    }
    let name: Name = Box::leak(text.into());
    read.insert(name);
    Some(name)
}

/// Deserializes a name.
pub(crate) fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    let text = String::deserialize(deserializer)?;
    kept(&text).ok_or_else(|| D::Error::custom("too long a name, or too many different names"))
}

/// Deserializes a name or nothing.
pub(crate) fn known_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Name>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let Some(text) = text else {
        return Ok(None);
    };
    let name = kept(&text);
    let name = name.ok_or_else(|| D::Error::custom("too long a name, or too many names"))?;
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, kept};

    #[test]
    fn equal_names_are_kept_once() {
        let name = kept("a source").expect("it is short");
        assert_eq!(name, "a source");
        let again = kept(&String::from("a source")).expect("it is known");
        assert!(std::ptr::eq(name, again));
    }

    #[test]
    fn long_name_is_refused() {
        assert_eq!(kept(&"n".repeat(MAX_BYTES + 1)), None);
    }
}

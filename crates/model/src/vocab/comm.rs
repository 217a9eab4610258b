//! The name of a thread.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A thread name (`comm`): at most 15 bytes, set by the thread itself, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// Truncates the name to the 15 bytes that the kernel keeps.
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(name.as_ref().iter().take(15)) {
            *to = *from;
        }
        Self(comm)
    }

    /// The bytes before the first NUL.
    pub fn as_bytes(&self) -> &[u8] {
        let mut parts = self.0.split(|byte| *byte == 0);
        parts.next().unwrap_or_default()
    }

    /// The name as text if it is UTF-8 (VMMs set only such names).
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

impl fmt::Display for Comm {
    /// Bytes that are not UTF-8 show as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({:?})", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Serialize for Comm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(self.as_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for Comm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Comm;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a thread")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Comm, E> {
                Ok(Comm::new(name))
            }
            fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Comm, E> {
                Ok(Comm::new(name))
            }
        }
        deserializer.deserialize_any(Name)
    }
}

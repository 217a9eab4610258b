//! How counters are serialized: as [`KvmValues`] for people, else as one row of numbers, which
//! a recording writes for each vCPU.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ABSENT, COUNTERS, KvmCounters, KvmValues};

/// Names of the counters in their order. A recording has them, so a name keeps its meaning.
pub(super) const NAMES: [&str; COUNTERS] = [
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_wait_ns",
    "io_exits",
    "mmio_exits",
    "halt_exits",
    "interrupt_exits",
    "interrupt_window_exits",
    "hypercall_exits",
    "other_exits",
    "pf_fixed",
    "pf_taken",
    "halt_wakeups",
    "polls_attempted",
    "polls_successful",
    "polls_invalid",
    "yields_attempted",
    "yields_successful",
    "preemptions_reported",
];

impl KvmCounters {
    /// The name of each counter of [`Self::row`].
    pub const NAMES: [&'static str; COUNTERS] = NAMES;

    /// The counters as they are recorded; `u64::MAX` is an absent one.
    pub fn row(&self) -> &[u64; COUNTERS] {
        &self.0
    }
}

impl Serialize for KvmCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return KvmValues::from(*self).serialize(serializer);
        }
        let mut row = serializer.serialize_struct("KvmCounters", COUNTERS)?;
        for (name, counter) in NAMES.into_iter().zip(self.0) {
            row.serialize_field(name, &counter)?;
        }
        row.end()
    }
}

impl<'de> Deserialize<'de> for KvmCounters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return KvmValues::deserialize(deserializer).map(Self::from);
        }
        deserializer.deserialize_struct("KvmCounters", &NAMES, Row)
    }
}

/// Reads a row. Counters that another version did not write are absent.
struct Row;

impl<'de> Visitor<'de> for Row {
    type Value = KvmCounters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the counters of a vCPU")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KvmCounters, A::Error> {
        let mut counters = [ABSENT; COUNTERS];
        while let Some(name) = map.next_key::<&str>()? {
            let at = NAMES.iter().position(|one| *one == name);
            match at.and_then(|at| counters.get_mut(at)) {
                Some(counter) => *counter = map.next_value()?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(KvmCounters(counters))
    }
}

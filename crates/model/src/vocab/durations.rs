//! Histogram of throttling durations.

use std::collections::BTreeMap;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Upper bounds of the buckets, ms; one more bucket has no upper bound
/// (`THROTTLE_BOUNDS_MS` in `bpf/map_abi.h`). A throttled run queue usually waits for the
/// rest of a period of 100 ms, so the buckets are narrow below it.
pub const BOUNDS_MS: [u64; 14] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200, 500];

/// Number of buckets.
pub const DURATIONS: usize = BOUNDS_MS.len() + 1;

/// How long per-CPU run queues were throttled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// Unthrottle events per bucket of [`BOUNDS_MS`]; the last bucket has no upper bound.
    pub counts: [u64; DURATIONS],
    /// Sum of all durations, ns: the amount that the kernel adds to `throttled_time`.
    pub sum_ns: u64,
}

impl Durations {
    /// Number of unthrottle events.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of two histograms.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        for (sum, count) in self.counts.iter_mut().zip(more.counts) {
            *sum = sum.saturating_add(count);
        }
        self.sum_ns = self.sum_ns.saturating_add(more.sum_ns);
        self
    }
}

/// The names of the buckets in JSON: their upper bounds.
const NAMES: [&str; DURATIONS] = [
    "5ms", "10ms", "20ms", "30ms", "40ms", "50ms", "60ms", "70ms", "80ms", "90ms", "100ms",
    "150ms", "200ms", "500ms", "over",
];

/// The name of the sum in JSON.
const SUM: &str = "sum_ns";

impl Serialize for Durations {
    /// Serializes by upper bound: `{"5ms": 0, …, "over": 0, "sum_ns": 0}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut values = serializer.serialize_struct("Durations", DURATIONS + 1)?;
        for (name, count) in NAMES.into_iter().zip(self.counts) {
            values.serialize_field(name, &count)?;
        }
        values.serialize_field(SUM, &self.sum_ns)?;
        values.end()
    }
}

impl<'de> Deserialize<'de> for Durations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_name = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let value = |name: &str| by_name.get(name).copied().unwrap_or(0);
        Ok(Self {
            counts: NAMES.map(value),
            sum_ns: value(SUM),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS_MS, NAMES};

    #[test]
    fn bucket_names_are_their_bounds() {
        let bounds = BOUNDS_MS.iter().map(|ms| format!("{ms}ms"));
        let names: Vec<String> = bounds.chain(["over".to_owned()]).collect();
        assert_eq!(names, NAMES);
    }
}

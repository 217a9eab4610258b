//! Histogram of throttling durations.

use serde::{Serialize, Serializer};

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

impl Serialize for Durations {
    /// Serializes by upper bound: `{"5ms": 0, …, "over": 0}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bounds = BOUNDS_MS.iter().map(|ms| format!("{ms}ms"));
        let names = bounds.chain(["over".to_owned()]);
        serializer.collect_map(names.zip(self.counts))
    }
}

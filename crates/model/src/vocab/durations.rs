//! How long throttling lasts, by duration.

use serde::{Serialize, Serializer};

/// Upper bounds of the durations that are told apart, ms; there is one kind
/// more, without a bound (`THROTTLE_BOUNDS_MS` in `bpf/abi.h`). A run queue that
/// is throttled mostly stands for what is left of a period of 100 ms.
pub const BOUNDS_MS: [u64; 8] = [1, 5, 10, 25, 50, 100, 250, 1000];

/// How many durations are told apart.
pub const DURATIONS: usize = BOUNDS_MS.len() + 1;

/// How long run queues of CPUs stood before they were set free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// How often, by [`BOUNDS_MS`]; the last has none.
    pub counts: [u64; DURATIONS],
    /// All of them together, ns: what the kernel adds to `throttled_time`.
    pub sum_ns: u64,
}

impl Durations {
    /// How often a run queue was set free.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Those of two cgroups together.
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
    /// By upper bound: `{"1ms": 0, …, "over": 0}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bounds = BOUNDS_MS.iter().map(|ms| format!("{ms}ms"));
        let names = bounds.chain(["over".to_owned()]);
        serializer.collect_map(names.zip(self.counts))
    }
}

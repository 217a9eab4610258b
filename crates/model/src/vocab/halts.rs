//! KVM's histograms of halts.

use serde::{Deserialize, Serialize};

/// Number of buckets: `HALT_POLL_HIST_COUNT` (`include/linux/kvm_types.h`).
pub const HALT_BUCKETS: usize = 32;

/// Counts by time: bucket i > 0 counts times in [2^(i-1), 2^i) ns, bucket 0 none longer than
/// 0, and the last one also all longer times (`kvm_stats_log_hist_update`,
/// `include/linux/kvm_host.h`).
pub type HaltBuckets = [u64; HALT_BUCKETS];

/// How long vCPUs were halted, by kind (since v5.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Halts {
    /// Polls that ended with a wake-up (`halt_poll_success_hist`).
    pub poll_success: HaltBuckets,
    /// Polls that did not (`halt_poll_fail_hist`).
    pub poll_fail: HaltBuckets,
    /// Sleeps, after a poll or without one (`halt_wait_hist`).
    pub wait: HaltBuckets,
}

impl Halts {
    /// Combines each count with that of `other`.
    #[must_use]
    pub fn with(mut self, other: &Self, one: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        let kinds = [
            (&mut self.poll_success, &other.poll_success),
            (&mut self.poll_fail, &other.poll_fail),
            (&mut self.wait, &other.wait),
        ];
        for (now, other) in kinds {
            for (count, other) in now.iter_mut().zip(other) {
                *count = one(*count, *other);
            }
        }
        self
    }

    /// Whether a count is lower than in `before`.
    pub fn fell_from(&self, before: &Self) -> bool {
        self.with(before, u64::max) != *self
    }
}

//! Observed throttling, in more detail than the kernel's counters.

use rustc_hash::FxHashMap;

use crate::facts::thread::ThreadClass;
use crate::vocab::{CgroupId, Durations};

/// Observed throttling of one cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleFact {
    /// Number of times that a per-CPU run queue was throttled.
    pub throttles: u64,
    /// Wall time in which at least one run queue was throttled, ns. An episode counts
    /// once it has ended.
    pub wall_ns: u64,
    /// Histogram of how long each run queue was throttled.
    pub durations: Durations,
}

impl ThrottleFact {
    /// The sum of two cgroups; wall times are added too.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.throttles = self.throttles.saturating_add(more.throttles);
        self.wall_ns = self.wall_ns.saturating_add(more.wall_ns);
        self.durations = self.durations.plus(&more.durations);
        self
    }

    /// All values: the wall time, the throttles and their durations.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        [self.wall_ns, self.throttles, self.durations.sum_ns]
            .into_iter()
            .chain(self.durations.counts)
    }
}

/// Threads that were running when a quota ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HitFact {
    /// The threads; the cgroup is the one whose quota ran out.
    pub class: ThreadClass,
    /// Number of times.
    pub hits: u64,
}

/// All throttling of the host's VMs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThrottlingFacts {
    /// By cgroup.
    pub cgroups: FxHashMap<CgroupId, ThrottleFact>,
    /// The threads that were running when a quota ran out.
    pub hits: Vec<HitFact>,
}

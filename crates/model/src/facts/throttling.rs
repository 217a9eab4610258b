//! Throttling as it was seen to happen: beyond what the kernel counts.

use rustc_hash::FxHashMap;

use crate::facts::thread::ThreadClass;
use crate::vocab::{CgroupId, Durations};

/// What was seen of one cgroup's throttling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleFact {
    /// Run queues of CPUs that were throttled.
    pub throttles: u64,
    /// Wall time in which at least one of them stood, ns; a throttling counts
    /// once it has ended.
    pub wall_ns: u64,
    /// How long each stood.
    pub durations: Durations,
}

impl ThrottleFact {
    /// What was seen of two cgroups together; of their wall times the sum.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.throttles = self.throttles.saturating_add(more.throttles);
        self.wall_ns = self.wall_ns.saturating_add(more.wall_ns);
        self.durations = self.durations.plus(&more.durations);
        self
    }

    /// All that it says: the wall time, the throttles, and their durations.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        [self.wall_ns, self.throttles, self.durations.sum_ns]
            .into_iter()
            .chain(self.durations.counts)
    }
}

/// Who ran when a quota ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HitFact {
    /// Which threads; the cgroup is the one whose quota it was.
    pub class: ThreadClass,
    /// How often.
    pub hits: u64,
}

/// All throttling of the host's VMs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThrottlingFacts {
    /// By cgroup.
    pub cgroups: FxHashMap<CgroupId, ThrottleFact>,
    /// Who ran.
    pub hits: Vec<HitFact>,
}

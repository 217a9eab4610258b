//! Observed throttling of a cgroup.

use serde::{Deserialize, Serialize};

use crate::vocab::durations::Durations;

/// Observed throttling of one cgroup, in more detail than the kernel's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Throttle {
    /// Wall time in which the cgroup was throttled on at least one CPU, ns. An episode
    /// counts once it has ended.
    pub wall_ns: u64,
    /// Number of times that a per-CPU run queue was throttled.
    pub throttles: u64,
    /// Unthrottle events by duration of the throttling.
    pub unthrottles: Durations,
}

impl Throttle {
    /// The sum of two cgroups; wall times are added too.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.wall_ns = self.wall_ns.saturating_add(more.wall_ns);
        self.throttles = self.throttles.saturating_add(more.throttles);
        self.unthrottles = self.unthrottles.plus(&more.unthrottles);
        self
    }

    /// All values: the wall time, the throttles and their durations.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        [self.wall_ns, self.throttles, self.unthrottles.sum_ns]
            .into_iter()
            .chain(self.unthrottles.counts)
    }
}

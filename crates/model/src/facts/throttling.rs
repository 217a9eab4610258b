//! Observed throttling, in more detail than the kernel's counters.

use rustc_hash::FxHashMap;

use crate::facts::thread::ThreadClass;
use crate::vocab::{CgroupId, Throttle};

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
    pub cgroups: FxHashMap<CgroupId, Throttle>,
    /// The threads that were running when a quota ran out.
    pub hits: Vec<HitFact>,
}

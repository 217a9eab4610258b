//! Cgroups.

use std::sync::Arc;

use crate::vocab::{CgroupId, MemoryEvents, Pressure};

/// A cgroup whose members are all read, and the pod to which it belongs.
///
/// For the pod's own cgroup both ids are the same. A Kata overhead cgroup lies outside
/// the pod's cgroup and also carries the pod's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchedCgroup {
    /// The watched cgroup; members at any depth count.
    pub cgroup: CgroupId,
    /// The cgroup of the pod to which the members belong.
    pub pod: CgroupId,
}

/// A cgroup on the path of a tracked thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFact {
    /// Kernel id of the cgroup.
    pub id: CgroupId,
    /// Id of the parent; `None` at the root.
    pub parent: Option<CgroupId>,
    /// Path from the root of the hierarchy; "/" is the root.
    pub path: Arc<str>,
    /// CPU bandwidth control; `None` if the cpu controller is not enabled for the cgroup,
    /// and at the root.
    pub bandwidth: Option<Bandwidth>,
    /// Memory usage and limit; `None` if the memory controller is not enabled for the
    /// cgroup, on v1, or if the source lacks it.
    pub memory: Option<CgroupMemory>,
}

/// Memory control of one cgroup (`struct mem_cgroup`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupMemory {
    /// Memory usage, bytes (`memory.current`).
    pub usage_bytes: u64,
    /// Memory limit, bytes (`memory.max`); `None` = no limit.
    pub limit_bytes: Option<u64>,
}

/// Further values of a cgroup that can have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelFact {
    /// Time for which its tasks were stalled; `None` if the kernel does not count it.
    pub pressure: Option<Pressure>,
    /// Events of its memory; `None` if the memory controller is not enabled for it.
    pub memory_events: Option<MemoryEvents>,
}

/// CPU bandwidth control of one cgroup (`struct cfs_bandwidth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    /// CPU time allowed per period, ns; `None` = no limit.
    pub quota_ns: Option<u64>,
    /// Length of a period, ns.
    pub period_ns: u64,
    /// Unused quota that can accumulate, ns (since v5.14).
    pub burst_ns: Option<u64>,
    /// Periods in which the cgroup had runnable tasks.
    pub periods: u64,
    /// Periods in which the cgroup was throttled on at least one CPU.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs (so it can exceed wall time), ns.
    pub throttled_ns: u64,
}

//! Cgroups.

use std::sync::Arc;

use crate::vocab::CgroupId;

/// A cgroup whose every member is to be read, and the pod it belongs to.
///
/// The pod's own cgroup stands for itself; a Kata overhead cgroup, which lies
/// outside of it, names the pod's id too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchedCgroup {
    /// The cgroup whose members (at any depth) are meant.
    pub cgroup: CgroupId,
    /// The pod cgroup that they belong to.
    pub pod: CgroupId,
}

/// A cgroup on the path of a tracked thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFact {
    /// Its id.
    pub id: CgroupId,
    /// Its parent's id; `None` at the root.
    pub parent: Option<CgroupId>,
    /// Its path from the root of the hierarchy, "/" for the root itself.
    pub path: Arc<str>,
    /// Its CPU bandwidth control; `None` where the cpu controller does not
    /// reach it (or at the root).
    pub bandwidth: Option<Bandwidth>,
    /// What it uses of memory; `None` where the memory controller does not
    /// reach it, on v1, or where the source does not tell.
    pub memory: Option<CgroupMemory>,
}

/// Memory control of one cgroup (`struct mem_cgroup`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupMemory {
    /// What it uses, bytes (`memory.current`).
    pub usage_bytes: u64,
    /// What it may use, bytes (`memory.max`); `None` = no limit.
    pub limit_bytes: Option<u64>,
}

/// CPU bandwidth control of one cgroup (`struct cfs_bandwidth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    /// CPU time that it may use each period, ns; `None` = no limit.
    pub quota_ns: Option<u64>,
    /// The length of a period, ns.
    pub period_ns: u64,
    /// Unused quota that it may save up, ns (since v5.14).
    pub burst_ns: Option<u64>,
    /// Periods that had something to run.
    pub periods: u64,
    /// Periods in which it was throttled on at least one CPU.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs (so it can exceed wall time), ns.
    pub throttled_ns: u64,
}

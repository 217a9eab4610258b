//! What placements are judged by, and how they are judged.

use std::sync::Arc;

use crate::snapshot::{Mismatch, Pairs, Unjudged};
use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::{Comm, CpuSet, Role, VhostDevice};

/// The share of its run time that a vCPU has to use in one place to sit there.
pub const SITS_PERCENT: u64 = 90;

/// The share of the window that a vCPU has to run for to be judged by where
/// it ran: one that hardly runs says little and suffers little.
pub const JUDGED_PERCENT: u64 = 5;

/// The share of the window that two vCPUs have to run on one core together to
/// have run at the same time: more than all of it, by more than the scheduler's
/// accounting lags (a tick for each).
pub const SIDE_BY_SIDE_PERCENT: u64 = 110;

/// The share of a VM's memory that may be on nodes where none of its vCPUs
/// sits: page cache and libraries of the VMM lie anywhere.
pub const REMOTE_PERCENT: u64 = 10;

/// A VM and where its threads are and were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmPlacement {
    /// Its name on this node.
    pub name: Arc<str>,
    /// The vCPUs that have a thread.
    pub vcpus: Vec<VcpuPlacement>,
    /// Living threads other than vCPUs'.
    pub helpers: Vec<HelperPlacement>,
    /// Its memory by NUMA node, bytes; `None` where that is not known.
    pub memory_by_node: Option<Vec<(u32, u64)>>,
    /// How many NUMA nodes the guest was told of (`-numa node` of QEMU; CPUID
    /// does not tell). `None` where that is not known.
    pub guest_nodes: Option<u32>,
    /// How long the times of the vCPUs took to add up, ns; 0 at a first
    /// reading, when only masks can be judged.
    pub window_ns: u64,
}

/// A vCPU and where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VcpuPlacement {
    /// `vcpu_id`.
    pub id: u32,
    /// Where the guest believes it to be.
    pub guest: Option<GuestPlace>,
    /// The CPUs it may run on.
    pub affinity: Option<Arc<CpuSet>>,
    /// CPU time that it used on each pCPU in the window, ns; pCPUs may be
    /// missing where that is not known.
    pub residency_ns: Vec<(u32, u64)>,
    /// CPU time that it used in the window, ns.
    pub cpu_ns: u64,
}

/// A thread of the VM that runs no vCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperPlacement {
    /// Its role.
    pub role: Role,
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub name: Comm,
    /// What it serves, of a vhost worker, where that is known.
    pub device: Option<VhostDevice>,
    /// The CPUs it may run on.
    pub affinity: Option<Arc<CpuSet>>,
}

/// How a VM sits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Sibling pairs, or why they cannot be told.
    pub pairs: Result<Pairs, Unjudged>,
    /// How many of its vCPUs are pinned.
    pub pinned_vcpus: u32,
    /// What is wrong, in the order of [`MismatchKind::ALL`].
    pub mismatches: Vec<Mismatch>,
}

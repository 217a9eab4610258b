//! Input and output of placement judgements.

use std::sync::Arc;

use crate::judge::runtime::Runtime;
use crate::snapshot::{Mismatch, Pairs, Unjudged};
use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::{Comm, CpuSet, Role, VhostDevice};

/// Minimum share of its run time that a vCPU must use in one place to be located there,
/// %.
pub const LOCATED_PERCENT: u64 = 90;

/// Minimum share of the window that a vCPU must run to be judged by measurement, %. A
/// vCPU that hardly runs shows little and suffers little.
pub const JUDGED_PERCENT: u64 = 5;

/// Minimum share of the window that two vCPUs on one core must run, summed, to prove that
/// they ran at the same time, %: more than 100, by more than the lag of the scheduler's
/// accounting (a tick for each vCPU).
pub const CONCURRENT_PERCENT: u64 = 110;

/// Allowed share of a VM's memory on nodes where none of its vCPUs is located, %: the
/// VMM's page cache and libraries can be on any node.
pub const REMOTE_PERCENT: u64 = 10;

/// A VM with the placement of its threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmPlacement {
    /// Name of the VM on its node; with libvirt the name of its domain.
    pub name: Arc<str>,
    /// The runtime that started it.
    pub runtime: Runtime,
    /// Process id of the VMM.
    pub pid: u32,
    /// The vCPUs that have a thread.
    pub vcpus: Vec<VcpuPlacement>,
    /// Living threads other than vCPUs'.
    pub helpers: Vec<HelperPlacement>,
    /// Memory by NUMA node, bytes; `None` if unknown.
    pub memory_by_node: Option<Vec<(u32, u64)>>,
    /// Number of NUMA nodes of the guest (QEMU's `-numa node`; not in CPUID). `None` if
    /// unknown.
    pub guest_nodes: Option<u32>,
    /// Interval of the vCPUs' times, ns; 0 at a first reading, when only masks can be
    /// judged.
    pub window_ns: u64,
}

/// A vCPU and its placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VcpuPlacement {
    /// `vcpu_id`.
    pub id: u32,
    /// Number by which the VMM and virsh name the vCPU. It differs from `id` if the ids
    /// have gaps.
    pub number: u32,
    /// Thread id.
    pub tid: u32,
    /// Position in the guest's topology.
    pub guest: Option<GuestPlace>,
    /// Allowed CPUs.
    pub affinity: Option<Arc<CpuSet>>,
    /// CPU time on each pCPU in the window, ns; unknown pCPUs can be missing.
    pub residency_ns: Vec<(u32, u64)>,
    /// CPU time in the window, ns.
    pub cpu_ns: u64,
}

/// A thread of the VM that is not a vCPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperPlacement {
    /// Its role.
    pub role: Role,
    /// Thread id.
    pub tid: u32,
    /// Name of the thread.
    pub name: Comm,
    /// The device that a vhost worker serves, if known.
    pub device: Option<VhostDevice>,
    /// Allowed CPUs.
    pub affinity: Option<Arc<CpuSet>>,
}

/// Result of judging a VM's placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Sibling pairs, or the reason why they are unknown.
    pub pairs: Result<Pairs, Unjudged>,
    /// Number of pinned vCPUs.
    pub pinned_vcpus: u32,
    /// The mismatches, in the order of `MismatchKind::ALL`.
    pub mismatches: Vec<Mismatch>,
}

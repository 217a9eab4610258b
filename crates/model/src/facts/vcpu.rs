//! vCPUs.

use crate::vocab::topology::guest::GuestTopology;
use crate::vocab::{Halts, KvmCounters, Moves, VmKey};

/// A vCPU in KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuFact {
    /// `vcpu_id`, the x2APIC id that the guest sees; can be sparse.
    pub id: u32,
    /// `vcpu_idx`, dense from 0 in order of creation; `None` without BPF.
    pub index: Option<u32>,
    /// KVM's counters; `None` if they cannot be read at this moment.
    pub stats: Option<VcpuStats>,
    /// The part of the thread's CPU time, ns, that [`ResidencyFact`]s attribute to a pCPU
    /// or that was used before the vCPU was first seen. The rest was used on the thread's
    /// present pCPU. `None` if moves are not tracked.
    pub charged_ns: Option<u64>,
}

/// CPU time that a vCPU used on one pCPU since the vCPU was first seen, up to
/// its last move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidencyFact {
    /// The VM of the vCPU.
    pub vm: VmKey,
    /// `vcpu_id` of the vCPU.
    pub vcpu_id: u32,
    /// The pCPU.
    pub pcpu: u32,
    /// CPU time on the pCPU, ns.
    pub run_ns: u64,
}

/// Histograms of the halts of one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltsFact {
    /// The VM of the vCPU.
    pub vm: VmKey,
    /// `vcpu_id` of the vCPU.
    pub vcpu_id: u32,
    /// Identifies the `kvm_vcpu`: the counts of another instance start at 0.
    pub instance: u64,
    /// The counts.
    pub halts: Halts,
}

/// VM-wide placement facts of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmPlacementFact {
    /// The guest's topology from its CPUID.
    pub guest: Option<GuestTopology>,
    /// Moves of its vCPUs since the VM was first seen; `None` if they are not tracked.
    pub moves: Option<Moves>,
}

/// KVM's counters of one vCPU since the vCPU was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VcpuStats {
    /// Identifies the `kvm_vcpu`: the counters of another instance start at 0.
    pub instance: u64,
    /// The counters.
    pub counters: KvmCounters,
    /// Whether the thread was preempted inside the guest at the time of the reading.
    pub preempted: bool,
}

/// KVM's counters of a vCPU at the end of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedVcpuFact {
    /// The VM of the vCPU.
    pub vm: VmKey,
    /// `vcpu_id` of the vCPU.
    pub id: u32,
    /// The counters.
    pub stats: VcpuStats,
}

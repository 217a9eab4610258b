//! vCPUs.

use crate::vocab::topology::guest::GuestTopology;
use crate::vocab::{KvmCounters, Moves, VmKey};

/// A vCPU, as KVM keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuFact {
    /// `vcpu_id`, the x2APIC id that the guest sees; may be sparse.
    pub id: u32,
    /// `vcpu_idx`, dense from 0 in order of creation; `None` without BPF.
    pub index: Option<u32>,
    /// KVM's counters; `None` where they cannot be read at this moment.
    pub stats: Option<VcpuStats>,
    /// CPU time of the thread whose pCPU is told by [`ResidencyFact`]s, or that
    /// was used before the vCPU was first seen, ns; what is beyond was used on
    /// the thread's present pCPU. `None` where moves are not followed.
    pub placed_ns: Option<u64>,
}

/// CPU time that a vCPU used on one pCPU since the vCPU was first seen, up to
/// its last move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidencyFact {
    /// Its VM.
    pub vm: VmKey,
    /// Its `vcpu_id`.
    pub vcpu_id: u32,
    /// The pCPU.
    pub pcpu: u32,
    /// CPU time there, ns.
    pub run_ns: u64,
}

/// What the source knows of a VM as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmPlacementFact {
    /// What its guest is told of its topology.
    pub guest: Option<GuestTopology>,
    /// Moves of its vCPUs since it was first seen; `None` where they are not
    /// followed.
    pub moves: Option<Moves>,
}

/// KVM's counters of one vCPU since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VcpuStats {
    /// Names the `kvm_vcpu`: counters of another instance start anew.
    pub instance: u64,
    /// The counters.
    pub counters: KvmCounters,
    /// Whether the thread was preempted inside the guest when it was read.
    pub preempted: bool,
}

/// What KVM had counted of a vCPU when its thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedVcpuFact {
    /// Its VM.
    pub vm: VmKey,
    /// Its `vcpu_id`.
    pub id: u32,
    /// The counters.
    pub stats: VcpuStats,
}

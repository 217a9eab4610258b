//! vCPUs.

use crate::vocab::topology::guest::GuestTopology;
use crate::vocab::{Moves, VmKey};

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
    /// ns spent polling for a wake-up that came.
    pub halt_poll_success_ns: u64,
    /// ns spent polling in vain.
    pub halt_poll_fail_ns: u64,
    /// ns blocked in the kernel after a HLT (since v5.15).
    pub halt_wait_ns: Option<u64>,
    /// Exits by class.
    pub exits: Exits,
    /// Page faults that KVM fixed (`pf_fixed`).
    pub pf_fixed: u64,
    /// Page faults taken (`pf_taken`, since v6.1).
    pub pf_taken: Option<u64>,
    /// Whether the thread was preempted inside the guest when it was read.
    pub preempted: bool,
}

/// VM exits of one vCPU by class. The classes are parts of `total`; the rest
/// is "other" (EPT faults, MSRs, CPUID …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exits {
    /// All exits (`exits`), with as many of the rest as were ever told: see
    /// [`Exits::by_class`].
    pub total: u64,
    /// Port I/O (`io_exits`).
    pub io: u64,
    /// MMIO emulated in user space (`mmio_exits`).
    pub mmio: u64,
    /// HLT (`halt_exits`).
    pub halt: u64,
    /// Interrupts of the host (`irq_exits`).
    pub interrupt: u64,
    /// The guest became ready for an interrupt (`irq_window_exits`,
    /// `nmi_window_exits`).
    pub interrupt_window: u64,
    /// Hypercalls (`hypercalls`).
    pub hypercall: u64,
}

impl Exits {
    /// The classes in the order of [`crate::vocab::ExitCounts::KINDS`], the
    /// rest last. The counters are not read at one instant, so the classes can
    /// be ahead of the total. And KVM counts an exit before its class
    /// (`vcpu_enter_guest`, `arch/x86/kvm/x86.c`): one that is under way is of the
    /// rest, where the programs keep it (`keep_other_exits`, `bpf/vcpu.bpf.h`) until
    /// another one takes its place.
    pub fn by_class(&self) -> [u64; 7] {
        let known = [
            self.io,
            self.mmio,
            self.halt,
            self.interrupt,
            self.interrupt_window,
            self.hypercall,
        ];
        let other = known
            .iter()
            .fold(self.total, |rest, class| rest.saturating_sub(*class));
        let [io, mmio, halt, interrupt, window, hypercall] = known;
        [io, mmio, halt, interrupt, window, hypercall, other]
    }
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

//! One reading of the host, uninterpreted.
//!
//! A source (the BPF task pass, or /proc without BPF) fills one [`Facts`]; the later
//! layers read only this. Times are cumulative since the creation of the object, ns.
//! `None` means that the source or the kernel lacks the value.

mod cgroup;
mod memory;
mod pcpu;
mod renewal;
mod thread;
mod threads;
mod throttling;
mod vcpu;

use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use self::cgroup::{Bandwidth, CgroupFact, CgroupMemory, LevelFact, WatchedCgroup};
pub use self::memory::{
    Backing, DiscardsFact, GuestMemfd, MemoryFact, Memslot, Piece, RamPiece, bytes_in,
    guest_memfd_bytes, is_dirty_logged, ram_bytes, ram_of,
};
pub use self::pcpu::{PcpuTimes, Pcpus};
pub use self::renewal::Renewal;
pub use self::thread::{RetiredFact, ThreadClass, ThreadFact, ThreadKind};
pub use self::threads::{Run, Threads};
pub use self::throttling::{HitFact, ThrottlingFacts};
pub use self::vcpu::{
    EndedVcpuFact, HaltsFact, ResidencyFact, VcpuFact, VcpuStats, VmPlacementFact,
};
use crate::vocab::{CgroupId, Comm, Mmu, Owner, ThreadKey, VhostDevice, VmKey};

/// A VM that a source found by its file descriptors. It can be paused, with no vCPU
/// inside `KVM_RUN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmFact {
    /// The VMM process.
    pub vm: VmKey,
    /// Number of vCPUs that KVM holds for it.
    pub vcpus: u32,
    /// KVM's counts of its page tables; `None` if the source cannot read them.
    pub mmu: Option<Mmu>,
}

/// One reading of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Existing VMs, found by their vCPUs or file descriptors. A VM with threads in
    /// `threads` can be missing here.
    pub vms: Vec<VmFact>,
    /// vCPUs, by id, that a thread is known to have run, even before the source first
    /// looked. A vCPU in this list without a living thread is parked.
    pub has_run: Arc<FxHashMap<VmKey, Vec<u32>>>,
    /// The device of each vhost worker, if the kernel exposes it: the vmlinux BTF or the
    /// module's BTF (since v5.11) must contain the vhost types. Workers created after the
    /// last scan of open files are missing.
    pub vhost_devices: Arc<FxHashMap<ThreadKey, VhostDevice>>,
    /// Living threads of VMs and of watched cgroups.
    pub threads: Threads,
    /// The cgroups of these threads and all their ancestors.
    pub cgroups: Vec<CgroupFact>,
    /// Further values of those cgroups that can have a limit; on cgroup v2 only.
    pub levels: FxHashMap<CgroupId, LevelFact>,
    /// Times of ended threads of VMs and of watched cgroups.
    pub retired: Vec<RetiredFact>,
    /// KVM's counters of the vCPUs among the ended threads.
    pub ended_vcpus: Vec<EndedVcpuFact>,
    /// Topology and moves of VMs.
    pub placements: FxHashMap<VmKey, VmPlacementFact>,
    /// CPU time of vCPUs by pCPU; `None` if it was not requested or is not tracked.
    pub residency: Option<Vec<ResidencyFact>>,
    /// Histograms of the halts of vCPUs; empty unless requested.
    pub halts: Vec<HaltsFact>,
    /// Throttling by cgroup, and the threads running when quotas ran out; `None` if
    /// throttling is not tracked.
    pub throttling: Option<ThrottlingFacts>,
    /// Memory of VMs.
    pub memory: FxHashMap<VmKey, MemoryFact>,
}

impl Facts {
    /// The VMs that have living threads; a VM can occur more than once.
    pub fn alive(&self) -> impl Iterator<Item = VmKey> {
        self.threads.runs().filter_map(|run| match run.owner {
            Owner::Vm(vm) => Some(vm),
            Owner::Pod(_) => None,
        })
    }

    /// VMs that KVM holds: one of their threads runs a vCPU, or their vCPUs were counted.
    /// A VMM can outlive its VM: Cloud Hypervisor keeps running after `vm.shutdown` and
    /// waits for the next `vm.boot` (seen with v54).
    pub fn held(&self) -> impl Iterator<Item = VmKey> {
        let by_threads = self.threads.runs().filter_map(|run| match run.owner {
            Owner::Vm(vm) if run.first_vcpu.is_some() => Some(vm),
            _ => None,
        });
        by_threads.chain(self.vms.iter().map(|fact| fact.vm))
    }
}

/// A process as it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessFact {
    /// The executable (`/proc/PID/exe`), if readable.
    pub exe: Option<String>,
    /// The arguments, decoded lossily.
    pub args: Vec<String>,
    /// The process name.
    pub comm: Comm,
}

//! What one reading of the host said, unjudged.
//!
//! A source (the BPF task pass, or /proc where there is no BPF) fills one
//! [`Facts`]; everything above reads only this. Times are nanoseconds,
//! cumulative since the birth of what they belong to. `None` means that this
//! source or this kernel does not tell.

mod cgroup;
mod memory;
mod thread;
mod throttling;
mod vcpu;

use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use self::cgroup::{Bandwidth, CgroupFact, CgroupMemory, WatchedCgroup};
pub use self::memory::{
    Backing, DiscardsFact, MemoryFact, Memslot, Piece, RamPiece, bytes_in, ram_of,
};
pub use self::thread::{RetiredFact, ThreadClass, ThreadFact, ThreadKind};
pub use self::throttling::{HitFact, ThrottleFact, ThrottlingFacts};
pub use self::vcpu::{EndedVcpuFact, ResidencyFact, VcpuFact, VcpuStats, VmPlacementFact};
use crate::vocab::{Comm, Owner, ThreadKey, VhostDevice, VmKey};

/// A VM that a source found by its file descriptors: it may be paused, with
/// no vCPU inside `KVM_RUN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmFact {
    /// The VMM process.
    pub vm: VmKey,
    /// How many vCPUs KVM holds for it.
    pub vcpus: u32,
}

/// One reading of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// VMs that are there, seen by their vCPUs or file descriptors. A VM that
    /// has threads in `threads` may be missing here.
    pub vms: Vec<VmFact>,
    /// vCPUs, by id, that some thread ran, also before the source first looked; as far
    /// as it knows. Those that no living thread runs are parked.
    pub has_run: Arc<FxHashMap<VmKey, Vec<u32>>>,
    /// What each vhost worker serves, where the kernel says it: its own type information
    /// must have the types of vhost, or that of its module (since v5.11). A worker that is
    /// newer than the last look at open files is not among them.
    pub vhost_devices: Arc<FxHashMap<ThreadKey, VhostDevice>>,
    /// Living threads of VMs and of watched cgroups.
    pub threads: Vec<ThreadFact>,
    /// The cgroups of those threads and all their ancestors.
    pub cgroups: Vec<CgroupFact>,
    /// What ended threads of VMs and of watched cgroups had used.
    pub retired: Vec<RetiredFact>,
    /// What KVM had counted of the vCPUs among them.
    pub ended_vcpus: Vec<EndedVcpuFact>,
    /// Topology and moves of VMs.
    pub placements: FxHashMap<VmKey, VmPlacementFact>,
    /// Where vCPUs ran; `None` where it was not asked for, or is not followed.
    pub residency: Option<Vec<ResidencyFact>>,
    /// Throttling by cgroup, and who ran when quotas ran out; `None` where it
    /// is not followed.
    pub throttling: Option<ThrottlingFacts>,
    /// Memory of VMs.
    pub memory: FxHashMap<VmKey, MemoryFact>,
}

impl Facts {
    /// The living threads in runs of one owner, none of them empty. A process's
    /// threads mostly follow each other, so what depends on the owner alone
    /// need not be asked for each.
    pub fn runs(&self) -> impl Iterator<Item = &[ThreadFact]> + Clone {
        self.threads.chunk_by(|one, next| one.owner == next.owner)
    }

    /// The VMs that have living threads; one may come more than once.
    pub fn alive(&self) -> impl Iterator<Item = VmKey> {
        self.runs().filter_map(|run| match run.first()?.owner {
            Owner::Vm(vm) => Some(vm),
            Owner::Pod(_) => None,
        })
    }

    /// VMs that KVM holds: a thread runs a vCPU of theirs, or their vCPUs were counted. A
    /// VMM may outlive its VM: Cloud Hypervisor does after `vm.shutdown`, and waits for
    /// the next `vm.boot` (seen with v54).
    pub fn held(&self) -> impl Iterator<Item = VmKey> {
        let by_threads = self.runs().filter_map(|run| match run.first()?.owner {
            Owner::Vm(vm) if run.iter().any(|thread| thread.vcpu.is_some()) => Some(vm),
            _ => None,
        });
        by_threads.chain(self.vms.iter().map(|fact| fact.vm))
    }
}

/// What a process said of itself when it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessFact {
    /// The file it runs (`/proc/PID/exe`), if it may be read.
    pub exe: Option<String>,
    /// Its arguments, lossily as text.
    pub args: Vec<String>,
    /// Its name.
    pub comm: Comm,
}

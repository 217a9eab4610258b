//! Whether VMs sit on the host's CPUs as their guests believe.
//!
//! A vCPU *sits* on a CPU, core, cache or node if its affinity mask leaves it
//! no other, or else if it was measured there: it used at least
//! [`SITS_PERCENT`] of its run time of the window there, and ran for at least
//! [`JUDGED_PERCENT`] of the window. A vCPU that sits nowhere is not judged.
//!
//! A vCPU is *pinned* if its mask holds one CPU, or no CPU beyond one core's,
//! while the host has others. Larger masks are not: inside them the scheduler
//! still chooses. Nor is a vCPU whose mask is that of all threads of its VMM:
//! then the VM is confined to a cpuset, and nobody has placed its vCPUs.
//!
//! | kind | raised when |
//! |---|---|
//! | `smt_split` | guest siblings sit on different host cores |
//! | `smt_shared` | vCPUs of different guest cores of one VM sit on one host core, not on one pCPU. Pinned: always. Measured: only if they ran there for more than [`SIDE_BY_SIDE_PERCENT`] of the window together, so side by side, and it was avoidable: the VM's masks hold a core for each guest core, and for all that vCPUs used of them |
//! | `vcpu_overlap` | more vCPUs, of any VM, are pinned to a CPU or a core than it has CPUs |
//! | `numa_split` | the vCPUs of a guest package sit on several nodes; or those of a VM do that was told no more than one vCPU a package (what VMMs tell when nobody asks), unless every package has a node for itself. Only where they would fit into one node, and not where the guest is known to have nodes of its own. Measured: only if one node had room for all that they used |
//! | `llc_split` | the pinned vCPUs of a guest die sit on several last-level caches of a node, and would fit into one. Never measured: the scheduler spreads threads over caches to use them all |
//! | `helper_on_vcpu` | a vhost, iothread or emulator thread may run on a CPU that a vCPU is pinned to, by a mask that somebody made: that of all online CPUs says nothing of dedicated CPUs, and lets the scheduler move it away |
//! | `remote_memory` | more than [`REMOTE_PERCENT`] of the VM's memory is on nodes where none of its vCPUs sits (nodes without CPUs are tiers of memory, and left out) |
//!
//! Guest cores *fit* where there is a host core for each; a guest core with
//! more threads than the host's takes as many as it needs. A host without SMT
//! has no `smt_*`, and a guest of unknown topology no `smt_*` and no `*_split`.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::cpuset::CpuSet;
use crate::facts::{Comm, VhostDevice};
use crate::snapshot::Role;
use crate::topology::guest::GuestPlace;
use crate::topology::host::HostTopology;

mod cores;
mod pins;
mod seat;
mod spread;
mod text;
mod tracker;

pub use tracker::Tracker;

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

/// What is wrong with a placement: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MismatchKind {
    /// Guest siblings on different host cores.
    SmtSplit,
    /// Two guest cores on one host core.
    SmtShared,
    /// More vCPUs pinned to pCPUs than there are pCPUs.
    VcpuOverlap,
    /// vCPUs on more NUMA nodes than they need.
    NumaSplit,
    /// vCPUs on more last-level caches than they need.
    LlcSplit,
    /// A helper thread is allowed on a pinned vCPU's pCPU.
    HelperOnVcpu,
    /// Memory on nodes where no vCPU sits.
    RemoteMemory,
}

impl MismatchKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::SmtSplit,
        Self::SmtShared,
        Self::VcpuOverlap,
        Self::NumaSplit,
        Self::LlcSplit,
        Self::HelperOnVcpu,
        Self::RemoteMemory,
    ];

    /// The name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmtSplit => "smt_split",
            Self::SmtShared => "smt_shared",
            Self::VcpuOverlap => "vcpu_overlap",
            Self::NumaSplit => "numa_split",
            Self::LlcSplit => "llc_split",
            Self::HelperOnVcpu => "helper_on_vcpu",
            Self::RemoteMemory => "remote_memory",
        }
    }
}

impl Serialize for MismatchKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One thing that is wrong with a VM's placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    /// What it is.
    pub kind: MismatchKind,
    /// The VM's vCPUs that suffer from it, by id, lowest first.
    pub vcpus: Vec<u32>,
    /// The pCPUs where it happens; in JSON a list of numbers, like the vCPUs.
    #[serde(serialize_with = "numbers")]
    pub pcpus: CpuSet,
    /// What was seen, as a sentence.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
}

fn numbers<S: Serializer>(cpus: &CpuSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(cpus.iter())
}

/// Pairs of a VM's vCPUs that sit on a core each. Pairs of which one sits
/// nowhere, or that are pinned to one pCPU, are in none of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pairs {
    /// Guest siblings on one host core.
    pub aligned: u32,
    /// Guest siblings on different host cores.
    pub split: u32,
    /// vCPUs of different guest cores on one host core, as far as `smt_shared`
    /// is raised for them.
    pub shared: u32,
}

/// Why there are no [`Pairs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// The guest's topology is not known.
    GuestTopology,
    /// The host does not tell which CPUs share a core.
    HostTopology,
    /// The host has no SMT, or it is off.
    NoSmt,
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

/// Judges all VMs of a host, in their order. All of them have to be there:
/// whether a vCPU overlaps, or could run elsewhere, depends on the others.
pub fn judge(host: &HostTopology, vms: &[VmPlacement]) -> Vec<Judgement> {
    let seated = seat::Seated::of(host, vms);
    let pins = pins::Pins::of(&seated);
    (0..vms.len())
        .map(|index| {
            let vm = seated.vm(index);
            let (pairs, mut mismatches) = cores::judge(&seated, &vm);
            mismatches.extend(pins.overlaps(&seated, index));
            mismatches.extend(spread::nodes(&seated, &vm));
            mismatches.extend(spread::caches(&seated, &vm));
            mismatches.extend(pins::helpers(&seated, &vm));
            mismatches.extend(spread::memory(&seated, &vm));
            Judgement {
                pairs,
                pinned_vcpus: vm.pinned(),
                mismatches,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;

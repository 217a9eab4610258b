//! What one reading of the host said, unjudged.
//!
//! A source (the BPF task pass, or /proc where there is no BPF) fills one
//! [`Facts`]; everything above reads only this. Times are nanoseconds,
//! cumulative since the birth of what they belong to. `None` means that this
//! source or this kernel does not tell.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::cpuset::CpuSet;
use crate::memory::MemoryFact;
use crate::throttle::ThrottlingFacts;
use crate::topology::guest::GuestTopology;
use crate::topology::host::Distance;
pub use crate::vhost::VhostDevice;

/// A VM: one VMM process. Pids are reused, a pid with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmKey {
    /// When the process started, ns since boot (`group_leader->start_boottime`;
    /// from /proc/PID/stat field 22 with the resolution of a clock tick).
    pub start_ns: u64,
    /// The process id in the initial pid namespace.
    pub tgid: u32,
}

/// A thread: ids are reused, an id with its start time is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// When it started, ns since boot.
    pub start_ns: u64,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
}

/// A cgroup's kernel id (`kernfs_node.id`; on 64-bit hosts the inode number
/// of its directory). Never reused while the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

/// Whom a thread's time belongs to, as far as the source can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A thread of this VMM process, or a vhost kernel thread that runs on
    /// its memory.
    Vm(VmKey),
    /// A thread of another process inside a watched cgroup (the pod's, or one
    /// that belongs to the pod), or of one that such a process has started and that sits
    /// in no watched cgroup; the id names the pod, see [`WatchedCgroup`].
    Pod(CgroupId),
}

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

/// A thread's name: at most 15 bytes, set by the thread itself, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm(pub [u8; 16]);

impl Comm {
    /// The name cut to the 15 bytes that the kernel keeps.
    pub fn new(name: impl AsRef<[u8]>) -> Self {
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(name.as_ref().iter().take(15)) {
            *to = *from;
        }
        Self(comm)
    }

    /// The bytes before the first NUL.
    pub fn as_bytes(&self) -> &[u8] {
        let mut parts = self.0.split(|byte| *byte == 0);
        parts.next().unwrap_or_default()
    }

    /// The name as text, if it is UTF-8 (all names that VMMs give are).
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }
}

impl fmt::Display for Comm {
    /// Bytes that are not UTF-8 show as U+FFFD.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({:?})", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Serialize for Comm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the kernel's flags say a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ThreadKind {
    /// An ordinary thread of a user process.
    User,
    /// `PF_USER_WORKER` without `PF_IO_WORKER`: a kernel worker inside the
    /// user's process, as vhost workers are since v6.4.
    UserWorker,
    /// `PF_IO_WORKER`: an `io_uring` worker inside the user's process.
    IoWorker,
    /// `PF_KTHREAD`: a kernel thread, as vhost workers were before v6.4 (it
    /// borrows the VMM's memory) and `kvm-pit` still is.
    Kthread,
}

/// One living thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFact {
    /// Whose it is.
    pub owner: Owner,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Process id in the initial pid namespace; a kernel thread's own id.
    pub tgid: u32,
    /// When the thread started, ns since boot; with `tid` its identity.
    pub start_ns: u64,
    /// What the kernel's flags say it is.
    pub kind: ThreadKind,
    /// The thread's name.
    pub comm: Comm,
    /// The name of its process's first thread.
    pub process_comm: Comm,
    /// CPU time used in its present class, ns (`se.sum_exec_runtime`; lags a running
    /// thread by at most a tick): what it used before its class changed, or before it
    /// began to exit, [`RetiredFact`] holds. The class is all that its role depends on:
    /// its owner, kind, names and vCPU. So are the two times below.
    pub cpu_ns: u64,
    /// Time runnable but not running, ns (`sched_info.run_delay`; holds
    /// throttled time too).
    pub wait_ns: Option<u64>,
    /// Time in guest mode, ns (`gtime`; sampled by the tick, so an estimate).
    pub guest_ns: Option<u64>,
    /// The innermost cgroup it sits in (v1: of the cpu controller).
    pub cgroup: CgroupId,
    /// The CPU it runs on, or ran on last.
    pub pcpu: Option<u32>,
    /// The CPUs it may run on.
    pub affinity: Option<Arc<CpuSet>>,
    /// The vCPU that it runs, if it does.
    pub vcpu: Option<VcpuFact>,
    /// How often its class has changed since it was first shown: with each change its
    /// times began anew.
    pub class_changes: u32,
}

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

/// How often vCPUs moved from one pCPU to another, by how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moves {
    /// In the order of [`Distance::ALL`].
    pub by_distance: [u64; Distance::ALL.len()],
    /// Where the host does not tell how far apart the two are.
    pub unknown: u64,
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
    /// The classes in the order of [`crate::snapshot::ExitCounts::KINDS`], the
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

/// Threads that count alike, living or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadClass {
    /// Whose they are.
    pub owner: Owner,
    /// The cgroup that they sat in, or the nearest above it that can have a
    /// limit; `None` where it is not known.
    pub cgroup: Option<CgroupId>,
    /// What they are.
    pub kind: ThreadKind,
    /// The vCPU that they run, if they do.
    pub vcpu_id: Option<u32>,
    /// Their name; empty where names were too many to keep.
    pub comm: Comm,
    /// Their process's name; empty where names were too many to keep.
    pub process_comm: Comm,
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

/// What threads had used that have ended, or that count in another class by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredFact {
    /// Which threads; the names are those at the end of what they used.
    pub class: ThreadClass,
    /// How many threads have ended.
    pub threads: u64,
    /// CPU time, ns, with what they used after they began to exit.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: u64,
    /// Guest-mode time, ns.
    pub guest_ns: u64,
}

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

impl Serialize for Moves {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_name())
    }
}

impl Moves {
    /// Moves by the name of their distance; "unknown" only if there are any.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let known = Distance::ALL
            .map(Distance::name)
            .into_iter()
            .zip(self.by_distance);
        let unknown = (self.unknown > 0).then_some(("unknown", self.unknown));
        known.chain(unknown)
    }
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

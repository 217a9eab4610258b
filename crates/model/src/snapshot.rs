//! One reading, judged: the structure that every face shows, and the JSON
//! that `virtlens snapshot -o json` prints.
//!
//! `apiVersion` changes when a field changes its meaning or goes; fields may
//! be added at any time. An absent value is `null`, never 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::facts::{Comm, Moves};
use crate::finding::Findings;
use crate::memory::Memory;
use crate::placement::{Mismatch, MismatchKind, Pairs, Unjudged};
use crate::pod::PodSpec;
use crate::throttle::{Durations, Throttle};
use crate::topology::guest::GuestShape;
use crate::vhost::VhostDevice;

mod vcpu;

pub use vcpu::{ExitCounts, HaltPoll, Vcpu, VcpuCount};

/// The version of the JSON shape.
pub const API_VERSION: &str = "virtlens/v1";

/// One reading of one node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// Always "Snapshot".
    pub kind: &'static str,
    /// When it was taken, RFC 3339, UTC.
    pub time: String,
    /// The same on a clock of the agent's own that never jumps, ns: what two
    /// readings of one agent differ by is the time between them.
    #[serde(skip)]
    pub clock_ns: u64,
    /// How old the values of the VMs are, ns: 0 unless this reading failed; `None` where
    /// none has worked. After some failures in a row there are no VMs, and then it is not
    /// known which there are.
    #[serde(rename = "reading_age_ns")]
    pub reading_age_ns: Option<u64>,
    /// The node.
    pub node: Node,
    /// What was read, and what could not be.
    pub sources: Vec<Source>,
    /// What was lost since the agent started, by reason; a closed set, with
    /// its zeros.
    pub dropped: Vec<Dropped>,
    /// The BPF maps and how full they are.
    pub maps: Vec<MapFill>,
    /// The BPF programs and what they cost, where the kernel keeps count.
    pub programs: Vec<ProgramCost>,
    /// The VMs, in the order of their pods' uids, then of their names.
    pub vms: Vec<Vm>,
}

impl Snapshot {
    /// Whether the VMs are all that there are, or were when a reading last worked.
    pub fn knows_vms(&self) -> bool {
        self.reading_age_ns == Some(0) || !self.vms.is_empty()
    }
}

/// One way in which something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The reason, from a closed set.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
}

/// A BPF map and how full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MapFill {
    /// Its name.
    pub map: &'static str,
    /// Entries in it, where that can be counted.
    pub entries: Option<u64>,
    /// Entries that it can hold.
    pub max_entries: u64,
}

/// A BPF program, what it cost and what it missed. The kernel counts the cost only
/// while `kernel.bpf_stats_enabled` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name.
    pub program: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// How long it ran, ns, over all runs.
    pub run_ns: u64,
    /// How often the kernel left it out, since it was interrupted on the same CPU;
    /// 0 before v5.12, which leaves none out.
    pub missed: u64,
}

/// The node that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name (`NODE_NAME`, or the host name).
    pub name: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// How many CPUs are online.
    pub cpus: u32,
    /// "v1" or "v2": where the cpu controller lives.
    pub cgroup: &'static str,
}

/// A source of facts and how it fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Its name, from a closed set.
    pub name: &'static str,
    /// Whether it works.
    pub up: bool,
    /// In which way it works ("bpf", "proc", "off" …).
    pub mode: &'static str,
    /// Why it does not, or not fully; empty when all is well.
    pub reason: String,
    /// What the last reading took, ns.
    pub duration_ns: Option<u64>,
    /// How long ago it last told how things are, ns; only of sources that tell by
    /// themselves.
    pub age_ns: Option<u64>,
}

/// Where a thread's time goes: the closed set of design section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs a vCPU.
    Vcpu,
    /// A vhost worker in the kernel.
    Vhost,
    /// A thread of a virtiofsd process.
    Virtiofsd,
    /// A thread of the VMM that does I/O and little else.
    Iothread,
    /// Any other thread of the VMM.
    Emulator,
    /// A thread of another process of the pod.
    Helper,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Vcpu,
        Self::Vhost,
        Self::Virtiofsd,
        Self::Iothread,
        Self::Emulator,
        Self::Helper,
    ];

    /// The name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vcpu => "vcpu",
            Self::Vhost => "vhost",
            Self::Virtiofsd => "virtiofsd",
            Self::Iothread => "iothread",
            Self::Emulator => "emulator",
            Self::Helper => "helper",
        }
    }
}

/// What a level of the cgroup path is to the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The pod's cgroup.
    Pod,
    /// The cgroup that Kata makes for a sandbox inside the pod's.
    Sandbox,
    /// A container's cgroup, or one below it.
    Container,
    /// A cgroup outside of the pod's or the machine's that holds threads of the VM: Kata's
    /// overhead cgroup, or the service of a manager that keeps a virtiofsd.
    Overhead,
    /// The cgroup of a VM that is no pod's: libvirt's machine scope, a
    /// systemd unit, or whatever the VMM was started in.
    Machine,
    /// libvirt's cgroup of one vCPU (`vcpu_quota`).
    Vcpu,
    /// libvirt's cgroup of the VMM's other threads and its vhost workers
    /// (`emulator_quota`).
    Emulator,
    /// libvirt's cgroup of one iothread (`iothread_quota`).
    Iothread,
}

impl Scope {
    /// All scopes, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Pod,
        Self::Sandbox,
        Self::Container,
        Self::Overhead,
        Self::Machine,
        Self::Vcpu,
        Self::Emulator,
        Self::Iothread,
    ];

    /// The name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Sandbox => "sandbox",
            Self::Container => "container",
            Self::Overhead => "overhead",
            Self::Machine => "machine",
            Self::Vcpu => "vcpu",
            Self::Emulator => "emulator",
            Self::Iothread => "iothread",
        }
    }
}

/// One VM.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vm {
    /// The pod's namespace, where it is known.
    pub namespace: Option<Arc<str>>,
    /// The pod's name, where it is known.
    pub pod: Option<Arc<str>>,
    /// The pod's uid, from the cgroup path.
    pub uid: Option<Arc<str>>,
    /// What the pod's maker asked for, where Kubernetes told.
    pub pod_spec: Option<Arc<PodSpec>>,
    /// The name that the VMM was given; unique on the node.
    pub vm: Arc<str>,
    /// Which VMM it is ("qemu", "cloud-hypervisor" …).
    pub vmm: &'static str,
    /// Who runs it ("kata", "kubevirt", "libvirt"), where it is known.
    pub runtime: Option<&'static str>,
    /// How its threads are laid out over cgroups: "pod" (all inside the
    /// pod's), "split" (some in an overhead cgroup), "stray" (all outside of the
    /// pod's), "machine", or `None`.
    pub cgroup_layout: Option<&'static str>,
    /// The VMM's process id.
    pub pid: u32,
    /// The cgroup of its vCPU threads.
    pub cgroup: Option<Arc<str>>,
    /// False once it has ended; its last values stay for a while.
    pub running: bool,
    /// CPU and wait time by role; only roles that there are or were.
    pub roles: Vec<RoleUse>,
    /// CPU time of threads of the pod that have no role, ns.
    pub unattributed_cpu_ns: u64,
    /// Guest-mode time of all vCPUs, ns (an estimate).
    pub guest_ns: Option<u64>,
    /// The living threads.
    pub threads: Vec<Thread>,
    /// The vCPUs that there are or were, by id.
    pub vcpus: Vec<Vcpu>,
    /// How many vCPUs KVM holds, how many of them were seen to run.
    pub vcpu_count: VcpuCount,
    /// I/O workers alone: vhost workers, iothreads, virtiofsd threads.
    pub workers: Vec<Worker>,
    /// CPU bandwidth control of its cgroups: of every level of its vCPUs' path that has
    /// it, and of every other cgroup that holds a thread of it and has or had a limit.
    pub quota: Vec<Quota>,
    /// Of each scope that has or had a limit the level that binds: the one that was
    /// throttled in most periods since the reading before.
    pub limits: Vec<Quota>,
    /// CPU time a second that the limits of all its cgroups allow together to the threads
    /// in them, cores; `None` where no thread has a limit.
    pub limit_cores: Option<f64>,
    /// The same of its vCPUs alone.
    pub vcpu_limit_cores: Option<f64>,
    /// How long run queues of its cgroups were throttled, those of cgroups that are gone
    /// included; `None` where that is not followed, or never was throttled.
    pub throttle_durations: Option<Durations>,
    /// The limit of its pod, where all of its threads sit outside of the cgroup that
    /// has it.
    pub unapplied_limit: Option<UnappliedLimit>,
    /// NUMA nodes that the guest was told of, where that is known.
    pub guest_nodes: Option<u32>,
    /// How often its vCPUs moved from one pCPU to another.
    pub moves: Option<Moves>,
    /// How it sits on the host's CPUs, as last judged.
    pub topology: Option<Arc<Topology>>,
    /// Its memory: what it holds, gave back and took again.
    pub memory: Memory,
    /// What is wrong with it, as last judged; `None` before that.
    pub findings: Option<Findings>,
}

/// A CPU limit that holds no thread of the VM which it is meant for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnappliedLimit {
    /// The cgroup that has it.
    pub cgroup: Arc<str>,
    /// CPU time a second, in cores.
    pub cores: f64,
}

/// How a VM sits on the host's CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// What the guest was told, as far as its vCPUs are there.
    pub guest: Option<GuestShape>,
    /// The CPUs that the cgroups of its vCPU threads allow together, as a list; of its
    /// VMM where no vCPU was seen.
    pub cpuset: Option<CpuSet>,
    /// vCPUs that are pinned.
    pub pinned_vcpus: u32,
    /// Pairs of vCPUs that share a core, in the guest or on the host.
    pub pairs: Option<Pairs>,
    /// Why there are no pairs.
    pub unknown: Option<Unjudged>,
    /// What is wrong.
    pub mismatches: Vec<Misplaced>,
    /// CPU time that vCPUs used while something was wrong, ns, by kind.
    pub misplaced_ns: BTreeMap<MismatchKind, u64>,
}

/// A mismatch, and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Misplaced {
    /// What it is.
    #[serde(flatten)]
    pub mismatch: Mismatch,
    /// When it was first seen, RFC 3339, UTC.
    pub since: String,
}

/// What one role of a VM used since the VM began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoleUse {
    /// The role.
    pub role: Role,
    /// Living threads.
    pub threads: u32,
    /// CPU time, ns, of living and ended threads.
    pub cpu_ns: u64,
    /// Run delay, ns, of living and ended threads.
    pub wait_ns: Option<u64>,
    /// Living threads in a cgroup outside of their pod's, which its limits and
    /// its accounting miss; `None` where the VM is no pod's.
    pub outside_pod: Option<u32>,
    /// How often a thread of it ran when a quota of the VM ran out, where that
    /// is followed.
    pub throttle_hits: Option<u64>,
}

/// One living thread of a VM.
#[derive(Debug, Clone, Serialize)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Its role; `None` is unattributed.
    pub role: Option<Role>,
    /// Its name.
    pub name: Comm,
    /// What it serves, of a vhost worker, where that is known.
    pub device: Option<VhostDevice>,
    /// CPU time, ns, since its birth.
    pub cpu_ns: u64,
    /// Run delay, ns, since its birth.
    pub wait_ns: Option<u64>,
    /// The CPU it runs on, or ran on last.
    pub pcpu: Option<u32>,
    /// The CPUs it may run on, as a list.
    pub affinity: Option<Arc<CpuSet>>,
}

/// One I/O worker: a vhost worker, an iothread or a virtiofsd thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// `Vhost`, `Iothread` or `Virtiofsd`.
    pub role: Role,
    /// Its number among the VM's workers of this role, in order of birth; a
    /// worker that ended gives its number to the next one born, whose time
    /// is added to it.
    pub worker: u32,
    /// The living thread.
    pub tid: Option<u32>,
    /// What that serves, of a vhost worker, where it is known.
    pub device: Option<VhostDevice>,
    /// CPU time, ns, of all threads that had this number.
    pub cpu_ns: u64,
}

/// CPU bandwidth control of one level of the VM's cgroup path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quota {
    /// What the level is to the VM.
    pub scope: Scope,
    /// The cgroup's path.
    pub cgroup: Arc<str>,
    /// CPU time a second, in cores; `None` = no limit.
    pub cores: Option<f64>,
    /// The length of a period, ns.
    pub period_ns: u64,
    /// Periods that had something to run.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
    /// CPU time of threads that sit in it or below, by role, ns; only where it
    /// has a limit, or had one.
    pub used_ns: BTreeMap<Role, u64>,
    /// What was seen of its throttling, where that is followed.
    pub throttle: Option<Throttle>,
}

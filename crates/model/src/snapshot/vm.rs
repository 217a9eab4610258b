//! One VM as it is shown.

use std::sync::Arc;

use serde::Serialize;

use crate::snapshot::finding::Findings;
use crate::snapshot::memory::Memory;
use crate::snapshot::quota::{Quota, UnappliedLimit};
use crate::snapshot::topology::Topology;
use crate::snapshot::vcpu::{Vcpu, VcpuCount};
use crate::vocab::{Comm, CpuSet, Durations, Moves, PodSpec, Role, VhostDevice};

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

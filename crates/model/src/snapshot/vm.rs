//! A VM in a snapshot.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::snapshot::finding::Findings;
use crate::snapshot::memory::Memory;
use crate::snapshot::quota::{Quota, UnappliedLimit};
use crate::snapshot::ready::Ready;
use crate::snapshot::topology::Topology;
use crate::snapshot::vcpu::{Vcpu, VcpuCount};
use crate::vocab::name::{self, Name};
use crate::vocab::{
    Comm, CpuSet, Durations, Halts, Mmu, Moves, PodSpec, Pressure, Role, SchedClass, VhostDevice,
};

/// One VM.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Vm {
    /// Namespace of the pod, if known.
    pub namespace: Option<Arc<str>>,
    /// Name of the pod, if known.
    pub pod: Option<Arc<str>>,
    /// Uid of the pod, from the cgroup path.
    pub uid: Option<Arc<str>>,
    /// The pod's specification, if Kubernetes reported it.
    pub pod_spec: Option<Arc<PodSpec>>,
    /// Name of the VM from the VMM; unique on the node.
    pub vm: Arc<str>,
    /// VMM of the VM ("qemu", "cloud-hypervisor" …).
    #[serde(deserialize_with = "name::known")]
    pub vmm: Name,
    /// Runtime of the VM ("kata", "kubevirt", "libvirt"), if known.
    #[serde(deserialize_with = "name::known_if_any", default)]
    pub runtime: Option<Name>,
    /// Layout of its threads over cgroups: "pod" (all inside the pod's), "split" (some in
    /// an overhead cgroup), "stray" (all outside the pod's), "machine", or `None`.
    #[serde(deserialize_with = "name::known_if_any", default)]
    pub cgroup_layout: Option<Name>,
    /// Process id of the VMM.
    pub pid: u32,
    /// Path of the cgroup of its vCPU threads.
    pub cgroup: Option<Arc<str>>,
    /// False once the VM has ended; its last values remain for a while.
    pub running: bool,
    /// CPU and wait time by role; only roles that have or had threads.
    pub roles: Vec<RoleUse>,
    /// CPU time of the pod's threads without a role, ns.
    pub unattributed_cpu_ns: u64,
    /// Guest-mode time of all vCPUs, ns (an estimate).
    pub guest_ns: Option<u64>,
    /// The living threads.
    pub threads: Vec<Thread>,
    /// The present and former vCPUs, by id.
    pub vcpus: Vec<Vcpu>,
    /// Numbers of vCPUs: held by KVM, seen running.
    pub vcpu_count: VcpuCount,
    /// Individual I/O workers: vhost workers, iothreads, virtiofsd threads.
    pub workers: Vec<Worker>,
    /// CPU bandwidth control of its cgroups: each level of its vCPUs' path that has
    /// bandwidth control, and each other cgroup that holds a thread of the VM and has or
    /// had a limit.
    pub quota: Vec<Quota>,
    /// The binding level of each scope that has or had a limit: the level that was
    /// throttled in the most periods since the previous reading.
    pub limits: Vec<Quota>,
    /// CPU time per second that the limits of all its cgroups together allow to the
    /// threads in them, cores; `None` if no thread has a limit.
    pub limit_cores: Option<f64>,
    /// The same for its vCPUs alone.
    pub vcpu_limit_cores: Option<f64>,
    /// How long run queues of its cgroups were throttled, including removed cgroups;
    /// `None` if throttling is not tracked or never occurred.
    pub throttle_durations: Option<Durations>,
    /// The limit of its pod, if all threads of the VM are outside the limited cgroup.
    pub unapplied_limit: Option<UnappliedLimit>,
    /// NUMA nodes of the guest, if known.
    pub guest_nodes: Option<u32>,
    /// Number of vCPU moves between pCPUs.
    pub moves: Option<Moves>,
    /// KVM's page tables: mapped guest memory by page size, TLB flushes.
    pub mmu: Option<Mmu>,
    /// Histograms of the halts of all vCPUs, if they were requested and the kernel has
    /// them: bucket i > 0 counts times in [2^(i-1), 2^i) ns.
    pub halts: Option<Box<Halts>>,
    /// Placement on the host's CPUs, as last judged.
    pub topology: Option<Arc<Topology>>,
    /// Memory: held, released and reused.
    pub memory: Memory,
    /// Time for which tasks of its pod's cgroup were stalled (without a pod: of its
    /// machine's); `None` on v1 or if the kernel does not count it.
    pub pressure: Option<Pressure>,
    /// CPU Ready since the previous reading; `None` unless `virtlens snapshot` was called
    /// with an interval.
    pub ready: Option<Ready>,
    /// Findings, as last judged; `None` before the first judgement.
    pub findings: Option<Findings>,
}

/// CPU and wait time of one role since the VM began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct RoleUse {
    /// The role.
    pub role: Role,
    /// Number of living threads.
    pub threads: u32,
    /// CPU time, ns, of living and ended threads.
    pub cpu_ns: u64,
    /// Run delay, ns, of living and ended threads.
    pub wait_ns: Option<u64>,
    /// Living threads in a cgroup outside the pod's, which the pod's limits and
    /// accounting miss; `None` if the VM has no pod.
    pub outside_pod: Option<u32>,
    /// Number of times that a thread of the role was running when a quota of the VM ran
    /// out, if tracked.
    pub throttle_hits: Option<u64>,
}

/// One living thread of a VM.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Role of the thread; `None` is unattributed.
    pub role: Option<Role>,
    /// Name of the thread.
    pub name: Comm,
    /// The device that a vhost worker serves, if known.
    pub device: Option<VhostDevice>,
    /// CPU time since the thread started, ns.
    pub cpu_ns: u64,
    /// Run delay since the thread started, ns.
    pub wait_ns: Option<u64>,
    /// The CPU on which the thread runs or last ran.
    pub pcpu: Option<u32>,
    /// Allowed CPUs, as a list.
    pub affinity: Option<Arc<CpuSet>>,
    /// Scheduling class, by the thread's policy. CPU limits apply to the fair class only.
    pub sched_class: Option<SchedClass>,
}

/// One I/O worker: a vhost worker, an iothread or a virtiofsd thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct Worker {
    /// `Vhost`, `Iothread` or `Virtiofsd`.
    pub role: Role,
    /// Number among the VM's workers of this role, in order of creation. The next worker
    /// reuses the number of an ended worker, and its time is added.
    pub worker: u32,
    /// Thread id of the living thread.
    pub tid: Option<u32>,
    /// The device that a vhost worker serves, if known.
    pub device: Option<VhostDevice>,
    /// CPU time of all threads that had this number, ns.
    pub cpu_ns: u64,
}

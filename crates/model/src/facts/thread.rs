//! Threads.

use std::sync::Arc;

use crate::facts::vcpu::VcpuFact;
use crate::vocab::{CgroupId, Comm, CpuSet, Owner};

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

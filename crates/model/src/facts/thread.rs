//! Threads.

use std::sync::Arc;

use crate::facts::vcpu::VcpuFact;
use crate::vocab::{CgroupId, Comm, CpuSet, Owner, SchedClass, Switches};

/// Kind of a thread by its kernel flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ThreadKind {
    /// An ordinary thread of a user process.
    User,
    /// `PF_USER_WORKER` without `PF_IO_WORKER`: a kernel worker inside the
    /// user's process, as vhost workers are since v6.4.
    UserWorker,
    /// `PF_IO_WORKER`: an `io_uring` worker inside the user's process.
    IoWorker,
    /// `PF_KTHREAD`: a kernel thread. Vhost workers were kernel threads before v6.4 (they
    /// borrow the VMM's memory); `kvm-pit` still is one.
    Kthread,
}

/// One living thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFact {
    /// The owner of the thread.
    pub owner: Owner,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// Process id in the initial pid namespace; for a kernel thread its own id.
    pub tgid: u32,
    /// Start time of the thread, ns since boot; unique together with `tid`.
    pub start_ns: u64,
    /// Kind of the thread by its kernel flags.
    pub kind: ThreadKind,
    /// Name of the thread.
    pub comm: Comm,
    /// Name of the thread-group leader.
    pub process_comm: Comm,
    /// CPU time used in the present class, ns (`se.sum_exec_runtime`; lags a running
    /// thread by at most a tick). [`RetiredFact`] holds the time used before the class
    /// changed or before the thread began to exit. The class is everything that
    /// determines the role: owner, kind, names and vCPU. The two times and the switches
    /// below count the same way.
    pub cpu_ns: u64,
    /// Time runnable but not running, ns (`sched_info.run_delay`; includes throttled
    /// time).
    pub wait_ns: Option<u64>,
    /// Time in guest mode, ns (`gtime`; sampled by the tick, so an estimate).
    pub guest_ns: Option<u64>,
    /// Context switches.
    pub switches: Option<Switches>,
    /// The innermost cgroup of the thread (v1: of the cpu controller).
    pub cgroup: CgroupId,
    /// The CPU on which the thread runs or last ran.
    pub pcpu: Option<u32>,
    /// Allowed CPUs.
    pub affinity: Option<Arc<CpuSet>>,
    /// Scheduling class.
    pub sched_class: Option<SchedClass>,
    /// The vCPU that the thread runs, if any.
    pub vcpu: Option<VcpuFact>,
    /// Number of class changes since the thread was first seen. Each change restarts the
    /// times at 0.
    pub class_changes: u32,
}

impl ThreadFact {
    /// Whether CPU limits apply to the thread, and its CPU time counts towards them. An
    /// unknown class is taken for the fair one.
    pub fn has_limits(&self) -> bool {
        self.sched_class
            .is_none_or(|class| class == SchedClass::Fair)
    }
}

/// Threads that are counted together, living or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadClass {
    /// The owner of the threads.
    pub owner: Owner,
    /// The cgroup of the threads, or its nearest ancestor that can have a limit; `None`
    /// if unknown, or if limits did not apply to the threads.
    pub cgroup: Option<CgroupId>,
    /// Kind of the threads.
    pub kind: ThreadKind,
    /// The vCPU that the threads run, if any.
    pub vcpu_id: Option<u32>,
    /// Name of the threads; empty if there were too many names to keep.
    pub comm: Comm,
    /// Name of their process; empty if there were too many names to keep.
    pub process_comm: Comm,
}

/// Times of threads that have ended or moved to another class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredFact {
    /// The class of the threads, with the names at the end of the counted time.
    pub class: ThreadClass,
    /// Number of ended threads.
    pub threads: u64,
    /// CPU time, ns, including the time after the threads began to exit.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: u64,
    /// Guest-mode time, ns.
    pub guest_ns: u64,
    /// Context switches.
    pub switches: Switches,
}

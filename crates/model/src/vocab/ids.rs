//! What a thread, a cgroup or a VM is known by.

use serde::{Deserialize, Serialize};

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

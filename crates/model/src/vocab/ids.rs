//! Identities of threads, cgroups and VMs.

use serde::{Deserialize, Serialize};

/// A VM: one VMM process. Pids are reused; a pid with its start time is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmKey {
    /// Start time of the process, ns since boot (`group_leader->start_boottime`;
    /// /proc/PID/stat field 22 has the resolution of a clock tick).
    pub start_ns: u64,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
}

/// A thread. Thread ids are reused; an id with its start time is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// Start time of the thread, ns since boot.
    pub start_ns: u64,
    /// Thread id in the initial pid namespace.
    pub tid: u32,
}

/// The kernel's cgroup id (`kernfs_node.id`; on 64-bit hosts the inode number of the
/// cgroup's directory). Never reused until the host reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

/// The owner of a thread's time, as far as the source can determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A thread of this VMM process, or a vhost kernel thread that uses its memory.
    Vm(VmKey),
    /// A thread of another process in a watched cgroup (the pod's cgroup or one that
    /// belongs to the pod), or of a child of such a process that is in no watched cgroup.
    /// The id is the pod's cgroup; see `facts::WatchedCgroup`.
    Pod(CgroupId),
}

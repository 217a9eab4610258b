//! Reads the files of a host: /proc, /sys and the cgroup file systems.
//!
//! Every path starts at a [`HostRoot`], so a test reads a temporary tree and a container
//! reads the host's tree that is mounted into it. This crate knows file formats; it does
//! not know roles, pods or metrics.
//!
//! ```text
//! HostRoot ─┬─ node       facts about the machine
//!           ├─ node_memory its memory and the pressure on it
//!           ├─ topology   its CPU topology
//!           ├─ cgroupfs   the cpu controller's hierarchy and counters
//!           ├─ pcpus      its time in interrupts by CPU
//!           ├─ cpuset     the CPUs that cgroups allow
//!           ├─ memory     memory of cgroups by NUMA node
//!           ├─ process    executable and arguments of a process
//!           ├─ backing    files that back its memory
//!           ├─ fds        processes that hold KVM's file descriptors
//!           └─ fallback   a reading of the host without BPF
//! ```
//!
//! A process or cgroup that vanishes while it is read is normal: it is counted
//! ([`Losses::races`]) and omitted. A value that cannot be parsed is absent and counted
//! too.

#![forbid(unsafe_code)]
// No input may panic the agent.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

mod backing;
mod bandwidth;
mod cgroupfs;
mod cpuset;
mod error;
mod fallback;
mod fds;
mod memory;
mod mounts;
mod node;
mod node_memory;
mod pcpus;
mod process;
mod root;
mod task;
mod topology;

pub use backing::{backing, parse_backing};
pub use bandwidth::{CpuStat, parse_cpu_max, parse_cpu_stat, parse_quota_us};
pub use cgroupfs::{
    CgroupVersion, Cgroups, Members, cgroup_version, parse_process_cgroup, parse_threads,
};
pub use error::{Error, Losses};
pub use fallback::{ProcSource, parse_children, vcpu_number};
pub use fds::{KvmLink, VmFds, VmScan, parse_kvm_link, vcpu_fds, vm_fds, vm_processes};
pub use memory::parse_numa_stat;
pub use mounts::{CgroupMount, parse_mountinfo};
pub use node::{
    NodeFacts, boot_id, node, nohz_full, parse_boot_time, parse_clock_ticks, parse_nohz_full,
};
pub use node_memory::{NodeMemory, memory_pressure, node_memory, parse_meminfo, parse_pressure};
pub use pcpus::{parse_pcpus, pcpus};
pub use process::{parse_cmdline, process};
pub use root::HostRoot;
pub use task::{
    Schedstat, TaskStat, TaskStatus, parse_schedstat, parse_stat, parse_status, thread_kind,
};
pub use topology::{TopologyFiles, TopologyStamp, topology};

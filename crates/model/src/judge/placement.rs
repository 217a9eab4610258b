//! Compares the placement of VMs on the host's CPUs with the topology of their guests.
//!
//! A vCPU is *located* on a CPU, core, cache or node in two cases.
//! Either its affinity mask allows no other one. Or it was measured there: it used at
//! least [`LOCATED_PERCENT`] of its run time of the window there, and ran for at least
//! [`JUDGED_PERCENT`] of the window. A vCPU without a location is not judged.
//!
//! A vCPU is *pinned* if its mask holds one CPU or only CPUs of one core, while the host
//! has others. Larger masks do not count, because the scheduler still chooses inside
//! them. If all threads of the VMM have the vCPU's mask, the vCPU is not pinned either:
//! the VM is confined to a cpuset, and its vCPUs were not placed individually.
//!
//! | kind | raised when |
//! |---|---|
//! | `smt_split` | guest siblings are located on different host cores |
//! | `smt_shared` | vCPUs of different guest cores of one VM are located on one host core, but not on one pCPU. Pinned: always. Measured: only if together they ran there for more than [`CONCURRENT_PERCENT`] of the window, and thus at the same time, and if it was avoidable: the VM's masks hold a core for each guest core, and have enough CPU time for all vCPUs that may run there |
//! | `vcpu_overlap` | more vCPUs, of any VM, are pinned to a CPU or a core than it has CPUs |
//! | `numa_split` | the vCPUs of a guest package are located on several nodes. If the guest has one vCPU per package (the default of VMMs), all vCPUs count as one package, unless each package has its own node. Only if the vCPUs would fit into one node, and if the guest is not known to have several nodes. Measured: only if one node had enough idle CPU time for all of them |
//! | `llc_split` | the pinned vCPUs of a guest die are located on several last-level caches of a node, and would fit into one. Never measured: the scheduler spreads threads over caches to use all of them |
//! | `helper_on_vcpu` | a vhost, iothread or emulator thread may run on a CPU to which a vCPU is pinned, by a mask that was set explicitly. A mask of all online CPUs does not count: it does not show that CPUs are dedicated, and it lets the scheduler move the thread away |
//! | `remote_memory` | more than [`REMOTE_PERCENT`] of the VM's memory is on nodes where none of its vCPUs is located (nodes without CPUs are memory tiers and are left out) |
//!
//! Guest cores *fit* if there is a host core for each; a guest core with more threads
//! than a host core needs several host cores. On a host without SMT no `smt_*` is raised,
//! and for a guest of unknown topology no `smt_*` and no `*_split`.

mod cores;
mod found;
mod location;
mod pins;
mod plan;
mod remedy;
mod rules;
mod settings;
mod spread;
mod text;
mod tracker;
mod types;

pub use self::rules::judge;
pub use self::tracker::Tracker;
pub use self::types::{
    CONCURRENT_PERCENT, HelperPlacement, JUDGED_PERCENT, Judgement, LOCATED_PERCENT,
    REMOTE_PERCENT, VcpuPlacement, VmPlacement,
};

#[cfg(test)]
mod tests;

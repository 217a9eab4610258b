//! Whether VMs sit on the host's CPUs as their guests believe.
//!
//! A vCPU *sits* on a CPU, core, cache or node if its affinity mask leaves it
//! no other, or else if it was measured there: it used at least
//! [`SITS_PERCENT`] of its run time of the window there, and ran for at least
//! [`JUDGED_PERCENT`] of the window. A vCPU that sits nowhere is not judged.
//!
//! A vCPU is *pinned* if its mask holds one CPU, or no CPU beyond one core's,
//! while the host has others. Larger masks are not: inside them the scheduler
//! still chooses. Nor is a vCPU whose mask is that of all threads of its VMM:
//! then the VM is confined to a cpuset, and nobody has placed its vCPUs.
//!
//! | kind | raised when |
//! |---|---|
//! | `smt_split` | guest siblings sit on different host cores |
//! | `smt_shared` | vCPUs of different guest cores of one VM sit on one host core, not on one pCPU. Pinned: always. Measured: only if they ran there for more than [`SIDE_BY_SIDE_PERCENT`] of the window together, so side by side, and it was avoidable: the VM's masks hold a core for each guest core, and for all that vCPUs used of them |
//! | `vcpu_overlap` | more vCPUs, of any VM, are pinned to a CPU or a core than it has CPUs |
//! | `numa_split` | the vCPUs of a guest package sit on several nodes; or those of a VM do that was told no more than one vCPU a package (what VMMs tell when nobody asks), unless every package has a node for itself. Only where they would fit into one node, and not where the guest is known to have nodes of its own. Measured: only if one node had room for all that they used |
//! | `llc_split` | the pinned vCPUs of a guest die sit on several last-level caches of a node, and would fit into one. Never measured: the scheduler spreads threads over caches to use them all |
//! | `helper_on_vcpu` | a vhost, iothread or emulator thread may run on a CPU that a vCPU is pinned to, by a mask that somebody made: that of all online CPUs says nothing of dedicated CPUs, and lets the scheduler move it away |
//! | `remote_memory` | more than [`REMOTE_PERCENT`] of the VM's memory is on nodes where none of its vCPUs sits (nodes without CPUs are tiers of memory, and left out) |
//!
//! Guest cores *fit* where there is a host core for each; a guest core with
//! more threads than the host's takes as many as it needs. A host without SMT
//! has no `smt_*`, and a guest of unknown topology no `smt_*` and no `*_split`.

mod cores;
mod pins;
mod rules;
mod seat;
mod spread;
mod text;
mod tracker;
mod types;

pub use self::rules::judge;
pub use self::tracker::Tracker;
pub use self::types::{
    HelperPlacement, JUDGED_PERCENT, Judgement, REMOTE_PERCENT, SIDE_BY_SIDE_PERCENT, SITS_PERCENT,
    VcpuPlacement, VmPlacement,
};

#[cfg(test)]
mod tests;

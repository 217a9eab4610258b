//! Pure judgement about VMs on a host.
//!
//! [`facts`] is what the kernel said, unjudged. [`roles`], [`cgroup`] and
//! [`vmm`] say what a thread, a path and a process are. [`fleet`] keeps which
//! VMs there are, [`ledger`] keeps their counters from ever falling, and
//! [`snapshot`] is the one structure that every face reads. [`topology`] says
//! where CPUs are, [`placement`] whether VMs sit where their guests believe,
//! [`memory`] what they hold and gave back, [`features`] what they have for it, [`pod`]
//! what Kubernetes calls them and asked for them.
//! [`timeline`] follows one VM event by event.
//!
//! ```text
//! facts ──► fleet (whose is it?) ──► ledger (totals that only rise) ──► snapshot
//!             ▲ roles · cgroup · vmm
//! ```
//!
//! Nothing here opens a file, asks the time or reads the environment.

#![forbid(unsafe_code)]
// Nothing that is read may be able to end the agent.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

pub mod cgroup;
#[expect(clippy::indexing_slicing, reason = "sums are as many as roles")]
pub mod charge;
pub mod cpuset;
pub mod facts;
pub mod features;
pub mod finding;
#[expect(
    clippy::indexing_slicing,
    reason = "runs of threads are never empty, VMs are members"
)]
pub mod fleet;
pub mod interval;
#[expect(clippy::indexing_slicing, reason = "places that were just looked for")]
pub mod ledger;
#[expect(clippy::indexing_slicing, reason = "places that were just looked for")]
pub mod level_moves;
#[expect(clippy::indexing_slicing, reason = "places in a list that it keeps")]
pub mod levels;
pub mod memory;
pub mod place;
#[expect(
    clippy::indexing_slicing,
    reason = "places in lists that it makes itself"
)]
pub mod placement;
pub mod pod;
#[expect(
    clippy::indexing_slicing,
    reason = "meters that were just put there, levels of one path"
)]
pub mod quota;
#[expect(clippy::indexing_slicing, reason = "sums are as many as roles")]
pub mod reading;
pub mod roles;
pub mod snapshot;
pub mod throttle;
pub mod timeline;
pub mod topology;
pub mod vhost;
pub mod vmm;
pub mod window;

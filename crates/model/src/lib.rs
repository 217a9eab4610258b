//! Pure judgement about VMs on a host, in layers. A layer imports from those before it:
//!
//! ```text
//! vocab ◄── facts ◄── snapshot ◄── identify ◄── account ◄── fleet ◄── judge
//!   ▲                                                                 timeline
//!   └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | layer | contents |
//! |---|---|
//! | [`vocab`] | the field's terms as types: roles, scopes, exits, CPU sets, topology |
//! | [`facts`] | one reading of the host, unjudged |
//! | [`snapshot`] | the one structure that every view shows: data only |
//! | [`identify`] | what a process, a thread name or a cgroup path says |
//! | [`account`] | counters that never fall, and the cgroups that are charged |
//! | [`fleet`] | which VMs there are, what belongs to each, and what they used |
//! | [`judge`] | where VMs run against what their guests believe, and findings |
//! | [`timeline`] | one VM event by event, for traces |
//!
//! The test `layers` fails when a module imports from a layer behind its own, and where
//! modules import each other in a circle.
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

pub mod account;
pub mod facts;
#[expect(
    clippy::indexing_slicing,
    reason = "runs of threads are never empty, VMs are members"
)]
pub mod fleet;
pub mod identify;
pub mod judge;
pub mod snapshot;
pub mod timeline;
pub mod vocab;

//! The model of VMs on a host, without I/O, in layers. A layer imports only from the
//! layers before it:
//!
//! ```text
//! vocab ◄── facts ◄── snapshot ◄── identify ◄── account ◄── fleet ◄── judge
//!   ▲                                                                 timeline
//!   └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | layer | contents |
//! |---|---|
//! | [`prefetch`] | loading of memory before it is needed; every layer may use it |
//! | [`vocab`] | the field's terms as types: roles, scopes, exits, CPU sets, topology |
//! | [`facts`] | one reading of the host, uninterpreted |
//! | [`snapshot`] | the structure that every output shows: data only |
//! | [`identify`] | classification of processes, thread names and cgroup paths |
//! | [`account`] | monotonic counters, and charging of threads to cgroups |
//! | [`fleet`] | the VMs of the host, their threads and cgroups, and their usage |
//! | [`judge`] | host placement against guest topology, and findings |
//! | [`timeline`] | one VM event by event, for traces |
//!
//! The test `layers` fails if a module imports from a later layer or if modules import
//! each other in a cycle.
//!
//! This crate opens no file, reads no clock and reads no environment variable.

// Data from the host must never make the agent panic.
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
#[expect(unsafe_code, reason = "an instruction without a safe function")]
pub mod prefetch;
pub mod snapshot;
pub mod timeline;
pub mod vocab;

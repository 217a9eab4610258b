//! A reading as Prometheus metrics.
//!
//! [`families`] is the one table of everything that is exported; the encoder,
//! `virtlens metrics` and the documentation all come from it. [`encode`]
//! writes a ready [`Reading`] in the [`Format`] that the scraper asked for.
//! No metric lives longer than its reading, so what a VM had vanishes with it.
//!
//! ```text
//! Snapshot + Agent = Reading ──► families ──► OpenMetrics 1.0 or text 0.0.4
//! ```

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

mod agent_rows;
mod encode;
mod family;
mod finding_rows;
mod format;
mod markdown;
mod memory_rows;
mod placement_rows;
mod samples;
mod seconds;
mod throttle_rows;
pub mod timeline;
mod vm_rows;

use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

pub use encode::encode;
pub use family::{Family, Kind, families};
pub use format::Format;
pub use markdown::markdown;

/// What one scrape tells: the host's VMs and the agent itself.
#[derive(Debug)]
pub struct Reading {
    /// The host and its VMs.
    pub snapshot: Arc<Snapshot>,
    /// The agent.
    pub agent: Agent,
}

/// What the agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The version of the program.
    pub version: &'static str,
    /// The commit it was built from; empty when the build did not say.
    pub revision: &'static str,
    /// The compiler that built it; empty when the build did not say.
    pub rustversion: &'static str,
    /// What the collection of this reading took, ns of wall time.
    pub collection_ns: u64,
    /// The agent's process.
    pub process: Process,
}

/// What the agent's process uses. `None` is what could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    /// CPU time since it began, user and system, ns.
    pub cpu_ns: Option<u64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// When it began, ns since the Unix epoch.
    pub start_unix_ns: Option<u64>,
}

//! One reading with the state of the agent that took it.

use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

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

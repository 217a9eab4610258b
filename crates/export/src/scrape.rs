//! A reading and the state of the agent that took it.

use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

/// The input of one scrape: the host's VMs and the agent itself.
#[derive(Debug)]
pub struct Scrape {
    /// The host and its VMs.
    pub snapshot: Arc<Snapshot>,
    /// The agent; `None` for a reading of a recording, which has no state of its agent.
    pub agent: Option<Agent>,
}

/// State of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// The version of the program.
    pub version: &'static str,
    /// The commit of the build; empty if the build did not set it.
    pub revision: &'static str,
    /// The compiler of the build; empty if the build did not set it.
    pub rustversion: &'static str,
    /// Duration of the collection, ns of wall time.
    pub collection_ns: u64,
    /// The agent's recording; `None` if it makes none.
    pub recording: Option<Recording>,
    /// The agent's process.
    pub process: Process,
}

/// State of the agent's recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recording {
    /// Readings that were recorded.
    pub kept: u64,
    /// Readings that were lost because the disk was behind.
    pub late: u64,
    /// Readings that were lost because the disk refused them.
    pub failed: u64,
    /// Size of the recording, bytes.
    pub bytes: u64,
}

/// Resource usage of the agent's process. `None` = could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    /// CPU time since the process started, user and system, ns.
    pub cpu_ns: Option<u64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Start time, ns since the Unix epoch.
    pub start_unix_ns: Option<u64>,
}

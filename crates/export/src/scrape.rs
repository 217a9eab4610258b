//! A reading and the state of the agent that took it.

use std::sync::Arc;

use virtlens_model::judge::onset::Skip;
use virtlens_model::snapshot::{Check, Snapshot};

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
    /// Its incidents; `None` if none are kept.
    pub incidents: Option<Incidents>,
}

/// Number of incidents that the agent kept or skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Incidents {
    /// In the order of [`Check::ALL`].
    by_check: [u64; Check::ALL.len()],
    /// Begun by an alert.
    by_alert: u64,
    /// In the order of [`Skip::ALL`].
    skipped: [u64; Skip::ALL.len()],
}

impl Incidents {
    /// Counts an incident that began with a check.
    pub fn begun(&mut self, check: Check) {
        let mut counts = Check::ALL.iter().zip(&mut self.by_check);
        if let Some((_, count)) = counts.find(|(one, _)| **one == check) {
            *count += 1;
        }
    }

    /// Counts an incident that began with an alert.
    pub fn begun_by_alert(&mut self) {
        self.by_alert += 1;
    }

    /// Counts an onset without an incident.
    pub fn skipped(&mut self, skip: Skip) {
        let mut counts = Skip::ALL.iter().zip(&mut self.skipped);
        if let Some((_, count)) = counts.find(|(one, _)| **one == skip) {
            *count += 1;
        }
    }

    /// Incidents by check.
    pub(crate) fn by_check(&self) -> impl Iterator<Item = (Check, u64)> {
        Check::ALL.into_iter().zip(self.by_check)
    }

    /// Incidents that began with an alert.
    pub(crate) fn by_alert(&self) -> u64 {
        self.by_alert
    }

    /// Skipped onsets by reason.
    pub(crate) fn by_skip(&self) -> impl Iterator<Item = (Skip, u64)> {
        Skip::ALL.into_iter().zip(self.skipped)
    }
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

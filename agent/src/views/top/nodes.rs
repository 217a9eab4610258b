//! The nodes whose VMs the screens show: one, or those of a cluster.

use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

use super::history::History;

/// A VM on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmId {
    /// Number of its node.
    pub node: usize,
    /// Its name on the node.
    pub vm: Arc<str>,
}

impl From<&str> for VmId {
    /// A VM of the first node.
    fn from(vm: &str) -> Self {
        let vm = vm.into();
        Self { node: 0, vm }
    }
}

/// Whether the display changes with new readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It shows the newest reading.
    Live,
    /// It shows the same reading until a key changes it.
    Paused,
}

/// A node and its last readings.
#[derive(Debug, Default)]
pub struct Node {
    /// Name in the list of a cluster's VMs.
    pub name: String,
    /// The last readings.
    pub history: History,
    /// If paused, the displayed reading, as the number of readings back.
    pub back: usize,
    /// The reason that its agent does not answer.
    pub silence: Option<String>,
}

impl Node {
    /// Adds a new reading. Returns whether it is the first one.
    pub(super) fn add(&mut self, reading: Arc<Snapshot>, mode: Mode) -> bool {
        self.silence = None;
        let newest = self.history.at(0).map(|newest| newest.clock_ns);
        if newest.is_some_and(|newest| newest > reading.clock_ns) {
            // The agent was restarted: there are no rates across that.
            self.history.clear();
            self.back = 0;
        }
        let is_new = newest != Some(reading.clock_ns);
        let before = self.history.len();
        self.history.add(reading);
        if mode == Mode::Paused && is_new {
            self.back = (self.back + 1).min(self.history.len().saturating_sub(1));
        }
        before == 0
    }

    /// The displayed reading.
    pub fn shown(&self) -> Option<&Arc<Snapshot>> {
        self.history.at(self.back)
    }
}

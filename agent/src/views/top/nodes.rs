//! The nodes whose VMs the screens show: one, or those of a cluster.

use std::borrow::Cow;
use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

use super::history::History;
use super::lists::{Listed, Lists};
use super::rows::{Row, rows};
use crate::views::shortfall::is_read;

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
    pub name: Arc<str>,
    /// The last readings; of a cluster's node only while the screen shows one of its VMs.
    pub history: History,
    /// If paused, the displayed reading, as the number of readings back.
    pub back: usize,
    /// The VMs of the last readings of a cluster's node.
    pub lists: Lists,
    /// If paused, the displayed list, as the number of lists back.
    pub list_back: usize,
    /// The reason that its agent does not answer.
    pub silence: Option<String>,
}

impl Node {
    /// Adds a new reading. Returns whether it is the first one.
    pub(super) fn add(&mut self, reading: Arc<Snapshot>, mode: Mode) -> bool {
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

    /// Adds the VMs of a new reading.
    pub(super) fn list(&mut self, listed: Listed, mode: Mode) {
        self.lists.add(listed);
        if mode == Mode::Paused {
            self.list_back = (self.list_back + 1).min(self.lists.len().saturating_sub(1));
        }
    }

    /// The displayed VMs; `number` is that of this node.
    pub(super) fn rows(&self, number: usize) -> Vec<Cow<'_, Row>> {
        if let Some(listed) = self.lists.at(self.list_back) {
            return listed.rows.iter().map(Cow::Borrowed).collect();
        }
        let Some(now) = self.shown() else {
            return Vec::new();
        };
        let before = self.history.at(self.back + 1).map(|reading| &**reading);
        let rows = rows((number, &self.name), before, now);
        rows.map(Cow::Owned).collect()
    }

    /// Whether the agent can read its host; `None` without a reading.
    pub(super) fn is_read(&self) -> Option<bool> {
        let listed = self.lists.at(self.list_back).map(|listed| listed.is_read);
        listed.or_else(|| self.shown().map(|reading| is_read(reading)))
    }

    /// Time of the newest reading.
    pub(super) fn time(&self) -> Option<&str> {
        let listed = self.lists.at(0).map(|listed| &*listed.time);
        listed.or_else(|| Some(&*self.history.at(0)?.time))
    }

    /// Shows the newest reading.
    pub(super) fn go_live(&mut self) {
        (self.back, self.list_back) = (0, 0);
    }

    /// The displayed reading.
    pub fn shown(&self) -> Option<&Arc<Snapshot>> {
        self.history.at(self.back)
    }
}

//! The readings of the asked agents, now or of a recorded time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use jiff::Timestamp;
use virtlens_kube::{NodeAgent, histories, snapshots};
use virtlens_model::snapshot::Snapshot;

use super::target::Target;
use crate::moment::PAST_WINDOW;
use crate::term::printable;
use crate::views::table::NodeReading;
use crate::views::{pick, top};

/// Times before a wanted one in which a reading is looked for: the first one suffices with the
/// default interval of recordings.
const LOOKBACK: [Duration; 2] = [Duration::from_secs(30), PAST_WINDOW];

impl Target {
    /// Selects the VMs to show of a reading.
    pub(super) fn select(&self, reading: &mut Snapshot) -> Result<(), pick::NoSuchVm> {
        if let Some(namespace) = &self.namespace {
            top::keep(reading, namespace);
        }
        if let Some(pod) = &self.pod {
            pick::pick(&reading.vms, Some(pod))?;
            reading.vms.retain(|vm| pick::is_called(vm, pod));
        }
        Ok(())
    }

    /// The present readings of the nodes that answer, with the nodes' names.
    pub(super) fn read(&self) -> anyhow::Result<Vec<(String, Snapshot)>> {
        let answers = self.answered(snapshots(&self.agents, self.pod.as_deref()))?;
        let mut readings = Vec::new();
        for (agent, mut reading) in answers {
            self.select(&mut reading)?;
            readings.push((agent.node.clone(), reading));
        }
        Ok(readings)
    }

    /// The exit code, if all nodes should be among `shown` answers.
    pub(super) fn code(&self, shown: usize) -> ExitCode {
        if self.is_complete(shown) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// The last recorded readings at a time or before, with the nodes' names; nodes without one
    /// are reported.
    pub(super) fn read_at(&self, at: Timestamp) -> anyhow::Result<Vec<(String, Snapshot)>> {
        let all: Vec<Wanted<'_>> = self.agents.iter().map(Wanted::from).collect();
        for window in LOOKBACK {
            let left: Vec<&Wanted<'_>> = all.iter().filter(|one| one.is_open()).collect();
            let agents: Vec<NodeAgent> = left.iter().map(|one| one.agent.clone()).collect();
            let (since, until) = (at.saturating_sub(window)?.to_string(), at.to_string());
            let vm = self.pod.as_deref();
            let answers = histories(&agents, vm, &since, &until, |number, reading| {
                if let Some(one) = left.get(number) {
                    one.last.replace(Some(reading));
                }
            });
            for (one, answer) in left.into_iter().zip(answers) {
                match answer {
                    Ok(lost) => lost
                        .iter()
                        .for_each(|lost| self.report(&one.agent.node, lost)),
                    // An error of the only agent is that of the command.
                    Err(error) if self.agents.len() == 1 => return Err(error.into()),
                    Err(error) => {
                        self.report(&one.agent.node, &error.to_string());
                        one.failed.set(true);
                    }
                }
            }
        }
        let mut readings = Vec::new();
        for one in all {
            let node = &one.agent.node;
            if one.is_open() {
                let minutes = PAST_WINDOW.as_secs() / 60;
                let reason = format!("no reading at {at}, or in the {minutes} min before");
                self.report(node, &reason);
            }
            if let Some(mut reading) = one.last.into_inner() {
                self.select(&mut reading)?;
                readings.push((node.clone(), reading));
            }
        }
        anyhow::ensure!(!readings.is_empty(), "no agent has a reading of {at}");
        Ok(readings)
    }
}

/// An agent whose recorded reading is wanted.
struct Wanted<'a> {
    agent: &'a NodeAgent,
    /// The last reading that it sent.
    last: RefCell<Option<Snapshot>>,
    /// Whether it did not answer.
    failed: Cell<bool>,
}

impl<'a> From<&'a NodeAgent> for Wanted<'a> {
    fn from(agent: &'a NodeAgent) -> Self {
        Self {
            agent,
            last: RefCell::default(),
            failed: Cell::default(),
        }
    }
}

impl Wanted<'_> {
    /// Whether it answered without a reading, or was not asked.
    fn is_open(&self) -> bool {
        self.last.borrow().is_none() && !self.failed.get()
    }
}

/// The present readings, and those an interval before.
pub(super) fn usage(
    target: &Target,
    interval: Option<Duration>,
) -> anyhow::Result<Vec<NodeReading>> {
    let first = target.read()?;
    let Some(interval) = interval else {
        return Ok(with(first, Vec::new()));
    };
    sleep(interval);
    Ok(with(target.read()?, first))
}

/// The recorded readings at a time, and those an interval before.
pub(super) fn usage_at(
    target: &Target,
    at: Timestamp,
    interval: Option<Duration>,
) -> anyhow::Result<Vec<NodeReading>> {
    let now = target.read_at(at)?;
    let before = match interval {
        Some(interval) => target.read_at(at.saturating_sub(interval)?)?,
        None => Vec::new(),
    };
    Ok(with(now, before))
}

/// Readings with those before of the same nodes; an agent that was restarted between them has
/// none before.
fn with(now: Vec<(String, Snapshot)>, before: Vec<(String, Snapshot)>) -> Vec<NodeReading> {
    let mut before: BTreeMap<String, Snapshot> = before.into_iter().collect();
    let now = now.into_iter().map(|(node, reading)| {
        let before = before.remove(&node);
        let before = before.filter(|before| before.clock_ns < reading.clock_ns);
        (node, reading, before)
    });
    now.collect()
}

/// A line for each node with the time of its reading.
pub(super) fn times_of<'r>(readings: impl Iterator<Item = (&'r str, &'r Snapshot)>) -> String {
    readings.fold(String::new(), |mut text, (node, reading)| {
        let (node, time) = (printable(node), printable(&reading.time));
        writeln!(text, "reading of {node}: {time}").expect("writing to a String cannot fail");
        text
    })
}

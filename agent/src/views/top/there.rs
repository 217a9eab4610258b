//! The readings of other nodes' agents.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use virtlens_kube::{NodeAgent, Pace, Unanswered, poll};
use virtlens_model::snapshot::Snapshot;

use super::feed::Feed;
use super::lists::{Listed, Lister};
use super::rows::Row;
use super::state::Top;
use super::tracing::Tracing;

/// Time between two looks for answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Answers that wait for the screen, per agent. Further ones are dropped, as the screen shows
/// the latest one only.
const WAITING: usize = 2;

/// The parts of a reading that are shown.
struct Shown {
    /// The VMs of a cluster's node, if the reading is new.
    listed: Option<Listed>,
    /// The reading of the only node, or of the one with the opened VM.
    reading: Option<Arc<Snapshot>>,
}

/// An answer of the agent with this number.
type Answer = (usize, Result<Shown, Unanswered>);

/// Asks agents in a separate thread, so that the screen reacts while they do not.
pub(super) struct There {
    agents: Vec<NodeAgent>,
    answers: Receiver<Answer>,
    pace: watch::Sender<Pace>,
}

impl There {
    /// Starts the thread, which ends with the feed. Only the VMs of `namespace` are shown, or all.
    pub(super) fn start(
        agents: Vec<NodeAgent>,
        namespace: Option<String>,
        top: &Top,
    ) -> io::Result<Self> {
        let (answer, answers) = sync_channel(WAITING * agents.len());
        let (pace, paces) = watch::channel(pace_of(top));
        let (asked, is_cluster) = (agents.clone(), top.is_cluster());
        thread::Builder::new()
            .name("agents".to_owned())
            .spawn(move || {
                let numbered = asked.iter().enumerate();
                let listers = numbered.map(|(number, agent)| {
                    let lister = is_cluster.then(|| Lister::new(number, &agent.node));
                    RefCell::new(lister)
                });
                let listers: Vec<_> = listers.collect();
                poll(&asked, &paces, |number, answered| {
                    let opened = paces.borrow().opened;
                    let shown = answered.map(|mut reading| {
                        if let Some(namespace) = &namespace {
                            keep(&mut reading, namespace);
                        }
                        let mut lister = listers.get(number).map(RefCell::borrow_mut);
                        let lister = lister.as_mut().and_then(|lister| lister.as_mut());
                        let is_wanted = lister.is_none() || opened == Some(number);
                        Shown {
                            listed: lister.and_then(|lister| lister.list(&reading)),
                            reading: is_wanted.then(|| Arc::new(reading)),
                        }
                    });
                    let sent = answer.try_send((number, shown));
                    !matches!(sent, Err(TrySendError::Disconnected(_)))
                });
            })?;
        Ok(Self {
            agents,
            answers,
            pace,
        })
    }
}

fn pace_of(top: &Top) -> Pace {
    Pace {
        interval: top.interval,
        opened: top.opened(),
    }
}

fn add(number: usize, answer: Result<Shown, Unanswered>, top: &mut Top) {
    match answer {
        Ok(Shown { listed, reading }) => {
            if let Some(node) = top.nodes.get_mut(number) {
                node.silence = None;
            }
            if let Some(listed) = listed {
                top.list_of(number, listed);
            }
            // A VM may have been closed since.
            let is_wanted = !top.is_cluster() || top.opened() == Some(number);
            if let Some(reading) = reading.filter(|_| is_wanted) {
                top.add_of(number, reading);
            }
        }
        Err(error) => {
            if !top.is_cluster() {
                top.message = error.to_string();
            }
            if let Some(node) = top.nodes.get_mut(number) {
                node.silence = Some(error.to_string());
            }
        }
    }
}

/// Removes the VMs of other namespaces.
pub fn keep(reading: &mut Snapshot, namespace: &str) {
    reading
        .vms
        .retain(|vm| vm.namespace.as_deref() == Some(namespace));
}

impl Feed for There {
    fn update(&mut self, top: &mut Top) {
        let pace = pace_of(top);
        if *self.pace.borrow() != pace {
            self.pace.send_replace(pace);
        }
        loop {
            match self.answers.try_recv() {
                Ok((number, answer)) => add(number, answer, top),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    "the thread that asks the agents has ended".clone_into(&mut top.message);
                    return;
                }
            }
        }
    }

    fn due_in(&self, _: &Top) -> Duration {
        LOOK_EVERY
    }

    fn trace(&self, vm: &Row, time: &str) -> anyhow::Result<Tracing> {
        let agent = self.agents.get(vm.node).context("unknown node")?;
        Tracing::there(vm, time, &agent.remote)
    }
}

//! The readings of other nodes' agents.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use tokio::sync::watch;
use virtlens_kube::{NodeAgent, Unanswered, poll};
use virtlens_model::snapshot::{Snapshot, Vm};

use super::feed::Feed;
use super::state::Top;
use super::tracing::Tracing;

/// Time between two looks for answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Answers that wait for the screen, per agent. Further ones are dropped, as the screen shows
/// the latest one only.
const WAITING: usize = 2;

/// An answer of the agent with this number.
type Answer = (usize, Result<Snapshot, Unanswered>);

/// Asks agents in a separate thread, so that the screen reacts while they do not.
pub(super) struct There {
    answers: Receiver<Answer>,
    interval: watch::Sender<Duration>,
    /// The namespace whose VMs are shown; `None` shows all.
    namespace: Option<String>,
}

impl There {
    /// Starts the thread, which ends with the feed.
    pub(super) fn start(
        agents: Vec<NodeAgent>,
        namespace: Option<String>,
        interval: Duration,
    ) -> io::Result<Self> {
        let (answer, answers) = sync_channel(WAITING * agents.len());
        let (interval, intervals) = watch::channel(interval);
        thread::Builder::new()
            .name("agents".to_owned())
            .spawn(move || {
                poll(&agents, &intervals, |number, reading| {
                    let sent = answer.try_send((number, reading));
                    !matches!(sent, Err(TrySendError::Disconnected(_)))
                });
            })?;
        Ok(Self {
            answers,
            interval,
            namespace,
        })
    }

    fn add(&self, number: usize, answer: Result<Snapshot, Unanswered>, top: &mut Top) {
        match answer {
            Ok(mut reading) => {
                if let Some(namespace) = &self.namespace {
                    keep(&mut reading, namespace);
                }
                top.add_of(number, Arc::new(reading));
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
}

/// Removes the VMs of other namespaces.
pub fn keep(reading: &mut Snapshot, namespace: &str) {
    reading
        .vms
        .retain(|vm| vm.namespace.as_deref() == Some(namespace));
}

impl Feed for There {
    fn update(&mut self, top: &mut Top) {
        if *self.interval.borrow() != top.interval {
            self.interval.send_replace(top.interval);
        }
        loop {
            match self.answers.try_recv() {
                Ok((number, answer)) => self.add(number, answer, top),
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

    fn trace(&self, _: &Vm, _: &str) -> anyhow::Result<Tracing> {
        bail!("virtlens trace runs on the node")
    }
}

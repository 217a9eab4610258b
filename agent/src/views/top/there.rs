//! The readings of another node's agent.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use virtlens_kube::{Remote, Unanswered};
use virtlens_model::snapshot::{Snapshot, Vm};

use super::feed::Feed;
use super::state::Top;
use super::tracing::Tracing;

/// Time between two looks for an answer.
const ANSWERED_AFTER: Duration = Duration::from_millis(50);

/// Asks an agent in a separate thread, so that the screen reacts while the agent does not.
pub(super) struct There {
    /// Each asks for a reading. The thread ends when it is dropped.
    wanted: SyncSender<()>,
    answers: Receiver<Result<Snapshot, Unanswered>>,
    asked: Instant,
    is_waiting: bool,
}

impl There {
    /// Starts the thread. The first reading was just taken.
    pub(super) fn start(agent: Remote) -> io::Result<Self> {
        let (wanted, requests) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        thread::Builder::new()
            .name("agent".to_owned())
            .spawn(move || {
                while requests.recv().is_ok() {
                    if answer.send(agent.snapshot(None)).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self {
            wanted,
            answers,
            asked: Instant::now(),
            is_waiting: false,
        })
    }
}

impl Feed for There {
    fn update(&mut self, top: &mut Top) {
        if self.is_waiting {
            match self.answers.try_recv() {
                Ok(Ok(reading)) => add(reading, top),
                Ok(Err(error)) => top.message = error.to_string(),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    "the thread that asks the agent has ended".clone_into(&mut top.message);
                }
            }
            self.is_waiting = false;
        }
        if self.asked.elapsed() >= top.interval {
            self.asked = Instant::now();
            self.is_waiting = self.wanted.try_send(()).is_ok();
        }
    }

    fn due_in(&self, top: &Top) -> Duration {
        if self.is_waiting {
            return ANSWERED_AFTER;
        }
        top.interval.saturating_sub(self.asked.elapsed())
    }

    fn trace(&self, _: &Vm, _: &str) -> anyhow::Result<Tracing> {
        bail!("virtlens trace runs on the node")
    }
}

/// Adds a reading, unless the agent returned the previous one again. There are no rates across
/// a restart of the agent.
fn add(reading: Snapshot, top: &mut Top) {
    let last = top.history.at(0).map(|last| last.clock_ns);
    if last == Some(reading.clock_ns) {
        return;
    }
    if last.is_some_and(|last| last > reading.clock_ns) {
        top.history = super::history::History::default();
    }
    top.add(Arc::new(reading));
}

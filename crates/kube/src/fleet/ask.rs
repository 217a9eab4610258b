//! Asks several agents at once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use virtlens_model::snapshot::Snapshot;

use super::NodeAgent;
use crate::remote::{Agent, Unanswered};

/// Agents that are asked at once.
const AT_ONCE: usize = 32;

/// Time for an answer of one of several agents.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the answers of all agents.
const DEADLINE: Duration = Duration::from_secs(20);

/// Time for the histories of all agents: each has several requests, each with a timeout.
const HISTORIES_DEADLINE: Duration = Duration::from_mins(2);

/// Pause after an agent did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// The present readings, or their parts about one VM, in the order of the agents.
pub fn snapshots(agents: &[NodeAgent], vm: Option<&str>) -> Vec<Result<Snapshot, Unanswered>> {
    all(
        agents,
        (DEADLINE, ANSWER_TIMEOUT),
        &async |_, agent: &Agent| agent.snapshot(vm).await,
    )
}

/// The kept incidents as JSON, in the order of the agents.
pub fn incidents(agents: &[NodeAgent]) -> Vec<Result<Vec<u8>, Unanswered>> {
    let time = (DEADLINE, ANSWER_TIMEOUT);
    all(agents, time, &async |_, agent: &Agent| {
        agent.incidents().await
    })
}

/// Passes the readings of a time that each agent recorded, or their parts about one VM, with the
/// number of the agent to `each`. `since` and `until` are as in RFC 3339. Returns the losses, in
/// the order of the agents.
pub fn histories(
    agents: &[NodeAgent],
    vm: Option<&str>,
    since: &str,
    until: &str,
    each: impl Fn(usize, Snapshot),
) -> Vec<Result<Vec<String>, Unanswered>> {
    let time = (HISTORIES_DEADLINE, HISTORIES_DEADLINE);
    all(agents, time, &async |number, agent: &Agent| {
        agent
            .history(vm, since, until, |reading| each(number, reading))
            .await
    })
}

/// Asks all agents; `time` is that for all and that for one.
fn all<T>(
    agents: &[NodeAgent],
    time: (Duration, Duration),
    ask: &impl AsyncFn(usize, &Agent) -> Result<T, Unanswered>,
) -> Vec<Result<T, Unanswered>> {
    let Some(first) = agents.first() else {
        return Vec::new();
    };
    let (deadline, longest) = time;
    first.remote.runtime().block_on(async {
        let end = Instant::now() + deadline;
        let asked = stream::iter(agents.iter().enumerate()).map(async |(number, one)| {
            let until = (Instant::now() + longest).min(end);
            let answer = timeout_at(until, ask(number, one.remote.agent())).await;
            answer.unwrap_or_else(|_| Err(silent(one, longest)))
        });
        asked.buffered(AT_ONCE).collect().await
    })
}

fn silent(agent: &NodeAgent, longest: Duration) -> Unanswered {
    let (node, seconds) = (&agent.node, longest.as_secs());
    Unanswered(format!(
        "the agent on {node} has not answered in {seconds} s"
    ))
}

/// The times at which agents are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time between two readings of an agent.
    pub interval: Duration,
    /// Number of the agent whose readings are of interest: once named, it is asked at once.
    pub opened: Option<usize>,
}

/// Asks each agent for readings at a pace, independently of the others, and passes the number of
/// the agent and its answer to `answer`, until it returns false. An agent that does not answer is
/// asked less often.
pub fn poll(
    agents: &[NodeAgent],
    pace: &watch::Receiver<Pace>,
    answer: impl Fn(usize, Result<Snapshot, Unanswered>) -> bool,
) {
    let Some(first) = agents.first() else {
        return;
    };
    let (over, places) = (Arc::new(Notify::new()), Semaphore::new(AT_ONCE));
    let one = async |(number, agent): (usize, &NodeAgent)| {
        let mut pace = pace.clone();
        loop {
            let asked = Instant::now();
            let was_opened = pace.borrow().opened == Some(number);
            let reading = {
                let _place = places.acquire().await;
                let reading = timeout(ANSWER_TIMEOUT, agent.remote.agent().snapshot(None)).await;
                reading.unwrap_or_else(|_| Err(silent(agent, ANSWER_TIMEOUT)))
            };
            let is_answered = reading.is_ok();
            if !answer(number, reading) {
                over.notify_one();
                return;
            }
            if !is_answered {
                sleep(RETRY_AFTER).await;
                continue;
            }
            loop {
                let Pace { interval, opened } = *pace.borrow_and_update();
                if opened == Some(number) && !was_opened {
                    break;
                }
                tokio::select! {
                    () = sleep(interval.saturating_sub(asked.elapsed())) => break,
                    changed = pace.changed() => if changed.is_err() {
                        over.notify_one();
                        return;
                    }
                }
            }
        }
    };
    first.remote.runtime().block_on(async {
        let loops = join_all(agents.iter().enumerate().map(one));
        tokio::select! {
            _ = loops => {}
            () = over.notified() => {}
        }
    });
}

//! Bearer tokens, of which the API server says whose they are.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use virtlens_kube::{Review, Reviewer};

use super::queue::Queue;
use crate::http::verdict_cache::VerdictCache;

/// How long it holds that one may: a right that is taken away ends by then.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long it holds that one may not: a right that is given begins by then.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long it holds that one may while the API server cannot be asked: metrics are
/// wanted most during an outage.
const ALLOWED_IN_OUTAGE: Duration = Duration::from_mins(10);
/// Reviews under way: a review waits for a network and costs the agent little.
const AT_ONCE: usize = 4;

/// Asks the API server about tokens, and remembers the answers for a while.
pub(super) struct Tokens {
    reviewer: Reviewer,
    memory: VerdictCache<Review>,
    queue: Queue,
    /// Why the API server could not be asked, as last told in the log.
    complaint: Mutex<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Too many wait for theirs.
    Busy,
    /// The API server cannot be asked.
    Away,
}

impl Tokens {
    pub(super) fn new(reviewer: Reviewer) -> Self {
        Self {
            reviewer,
            memory: VerdictCache::new(),
            queue: Queue::new(AT_ONCE),
            complaint: Mutex::default(),
        }
    }

    /// Whether the one with this token, a client at `peer`, may get `path`.
    pub(super) async fn review(
        &self,
        peer: IpAddr,
        token: &str,
        path: &str,
    ) -> Result<Review, NoAnswer> {
        let tag = self.memory.tag(&[token.as_bytes(), path.as_bytes()]);
        let recall = || self.memory.recall(&tag, lifetime);
        if let Some(review) = recall() {
            return Ok(review);
        }
        // Who was let in before waits for nobody's guesses.
        let lately = self.memory.recall(&tag, lately);
        let _turn = if lately == Some(Review::Allowed) {
            None
        } else {
            let waiting = self.queue.wait(peer).ok_or(NoAnswer::Busy)?;
            Some(waiting.turn().await.ok_or(NoAnswer::Busy)?)
        };
        // Who came with the same before may have had it reviewed meanwhile.
        if let Some(review) = recall() {
            return Ok(review);
        }
        match self.reviewer.may_get(token, path).await {
            Ok(review) => {
                self.memory.remember(tag, review);
                self.complain(String::new());
                Ok(review)
            }
            Err(error) => {
                self.complain(error);
                lately
                    .filter(|review| *review == Review::Allowed)
                    .ok_or(NoAnswer::Away)
            }
        }
    }

    /// Says once why, however many ask.
    fn complain(&self, error: String) {
        let mut complaint = self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *complaint != error && !error.is_empty() {
            tracing::warn!(error, "tokens cannot be reviewed");
        }
        *complaint = error;
    }
}

fn lately(review: Review) -> Duration {
    match review {
        Review::Allowed => ALLOWED_IN_OUTAGE,
        Review::Forbidden | Review::Unknown => Duration::ZERO,
    }
}

fn lifetime(review: Review) -> Duration {
    match review {
        Review::Allowed => ALLOWED_FOR,
        Review::Forbidden | Review::Unknown => REFUSED_FOR,
    }
}

//! Bearer tokens, reviewed by the API server.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use virtlens_kube::{Review, Reviewer};

use super::queue::Queue;
use crate::http::verdict_cache::VerdictCache;

/// Lifetime of a positive review, and so the maximum time until a revoked right takes
/// effect.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// Lifetime of a negative review, and so the maximum time until a new right takes effect.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Lifetime of a positive review while the API server is not available: metrics are
/// needed most during an outage.
const ALLOWED_IN_OUTAGE: Duration = Duration::from_mins(10);
/// Limit on concurrent reviews: a review waits for the network and costs the agent
/// little.
const AT_ONCE: usize = 4;

/// Has the API server review tokens, and caches the results.
pub(super) struct Tokens {
    reviewer: Reviewer,
    cache: VerdictCache<Review>,
    queue: Queue,
    /// The reason for unavailability of the API server that was logged last.
    logged: Mutex<String>,
}

/// Reason for a missing review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Too many reviews are waiting.
    Busy,
    /// The API server is not available.
    Away,
}

impl Tokens {
    pub(super) fn new(reviewer: Reviewer) -> Self {
        Self {
            reviewer,
            cache: VerdictCache::new(),
            queue: Queue::new(AT_ONCE),
            logged: Mutex::default(),
        }
    }

    /// Reviews whether the owner of `token`, a client at `peer`, may get `path`.
    pub(super) async fn review(
        &self,
        peer: IpAddr,
        token: &str,
        path: &str,
    ) -> Result<Review, NoAnswer> {
        let tag = self.cache.tag(&[token.as_bytes(), path.as_bytes()]);
        let recall = || self.cache.recall(&tag, lifetime);
        if let Some(review) = recall() {
            return Ok(review);
        }
        // A recently authorized client bypasses the queue, so that guesses of others
        // cannot block it.
        let previous = self.cache.recall(&tag, lifetime_in_outage);
        let _permit = if previous == Some(Review::Allowed) {
            None
        } else {
            let waiting = self.queue.wait(peer).ok_or(NoAnswer::Busy)?;
            Some(waiting.permit().await.ok_or(NoAnswer::Busy)?)
        };
        // Another request with the same token may have been reviewed meanwhile.
        if let Some(review) = recall() {
            return Ok(review);
        }
        match self.reviewer.may_get(token, path).await {
            Ok(review) => {
                self.cache.remember(tag, review);
                self.log_once(String::new());
                Ok(review)
            }
            Err(error) => {
                self.log_once(error);
                previous
                    .filter(|review| *review == Review::Allowed)
                    .ok_or(NoAnswer::Away)
            }
        }
    }

    /// Logs a reason once, regardless of the number of requests.
    fn log_once(&self, error: String) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != error && !error.is_empty() {
            tracing::warn!(error, "cannot review tokens");
        }
        *logged = error;
    }
}

fn lifetime_in_outage(review: Review) -> Duration {
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

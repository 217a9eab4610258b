//! Bearer tokens, reviewed by the API server.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use virtlens_kube::{Reviewer, Right};

use super::queue::Queue;
use crate::http::namespaces::{NamespaceCache, Namespaces};
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
/// Lifetime of a review of the pods of a namespace, and so the maximum time until a changed
/// right takes effect.
const NAMESPACE_FOR: Duration = Duration::from_mins(1);
/// Limit on the namespaces that are reviewed for one request.
const MAX_NAMESPACES: usize = 64;

/// Result of a review by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    /// The request is authorized.
    Allowed,
    /// The user is authenticated, but not authorized.
    Forbidden,
    /// The token is invalid or has expired.
    Unknown,
}

/// Has the API server review tokens, and caches the results.
pub(super) struct Tokens {
    reviewer: Reviewer,
    cache: VerdictCache<Review>,
    namespaces: NamespaceCache,
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
            namespaces: NamespaceCache::default(),
            queue: Queue::new(AT_ONCE),
            logged: Mutex::default(),
        }
    }

    /// Reviews whether the owner of `token`, a client at `peer`, has a right.
    pub(super) async fn review(
        &self,
        peer: IpAddr,
        token: &str,
        right: Right,
    ) -> Result<Review, NoAnswer> {
        let [verb, name] = parts_of(&right).map(str::as_bytes);
        let tag = self.cache.tag(&[token.as_bytes(), verb, name]);
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
        match self.ask(token, vec![right]).await {
            Some(granted) => {
                let review = match granted {
                    None => Review::Unknown,
                    Some(granted) if granted.contains(&true) => Review::Allowed,
                    Some(_) => Review::Forbidden,
                };
                self.cache.remember(tag, review);
                Ok(review)
            }
            None => previous
                .filter(|review| *review == Review::Allowed)
                .ok_or(NoAnswer::Away),
        }
    }

    /// Returns the namespaces among `wanted` in which the owner of `token`, a client at
    /// `peer`, may get pods; `None` if the token is invalid or has expired. At most
    /// [`MAX_NAMESPACES`] are reviewed; further ones are reviewed if the client tries again.
    pub(super) async fn namespaces(
        &self,
        peer: IpAddr,
        token: &str,
        wanted: &Namespaces,
    ) -> Result<Option<Namespaces>, NoAnswer> {
        let tag = self.cache.tag(&[token.as_bytes()]);
        let (mut visible, unknown) = self.namespaces.recall(&tag, wanted, NAMESPACE_FOR);
        if unknown.is_empty() {
            return Ok(Some(visible));
        }
        let waiting = self.queue.wait(peer).ok_or(NoAnswer::Busy)?;
        let _permit = waiting.permit().await.ok_or(NoAnswer::Busy)?;
        let reviewed: Vec<Arc<str>> = unknown.iter().take(MAX_NAMESPACES).cloned().collect();
        let rights = reviewed.iter().map(|name| Right::Pods(name.to_string()));
        let granted = self.ask(token, rights.collect()).await;
        let Some(granted) = granted.ok_or(NoAnswer::Away)? else {
            return Ok(None);
        };
        let is_complete = reviewed.len() == unknown.len();
        let verdicts: Vec<_> = reviewed.into_iter().zip(granted).collect();
        let new = verdicts.iter().filter(|(_, may)| *may);
        visible.extend(new.map(|(name, _)| Arc::clone(name)));
        self.namespaces.remember(tag, verdicts);
        if is_complete {
            Ok(Some(visible))
        } else {
            Err(NoAnswer::Busy)
        }
    }

    /// Asks the API server; `None` if it is not available.
    async fn ask(&self, token: &str, rights: Vec<Right>) -> Option<Option<Vec<bool>>> {
        match self.reviewer.review(token, rights).await {
            Ok(granted) => {
                self.log_once(String::new());
                Some(granted)
            }
            Err(error) => {
                self.log_once(error);
                None
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

/// The parts of a cache key that stand for a right.
fn parts_of(right: &Right) -> [&str; 2] {
    match right {
        Right::Path(path) => ["get", path],
        Right::Post(path) => ["post", path],
        Right::Pods(namespace) => ["pods", namespace],
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

//! State that all connections share, and one request with its client.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::Method;
use hyper::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::collect::readings::Readings;
use crate::collect::traces::Traces;
use crate::http::answer::Problem;
use crate::http::auth::{Access, Auth, Refusal};
use crate::http::namespaces::Namespaces;
use crate::http::time_limit::TimeLimit;
use crate::http::web_config::WebConfig;

/// Limit on concurrent streams. Each holds a connection and up to two readings as JSON.
const MAX_STREAMS: usize = 4;
/// Limit on concurrent histories: each reads and decodes files.
const MAX_HISTORIES: usize = 2;
/// Limit on concurrent requests for incidents: each reads files.
const MAX_INCIDENTS: usize = 2;
/// Limit on traces that are taken or sent concurrently: each is a file.
const MAX_TRACES: usize = 2;
/// Limit on messages that are read concurrently: each is in memory.
const MAX_MESSAGES: usize = 2;
/// Limit on readings that are selected and encoded for single clients concurrently.
const MAX_ENCODINGS: usize = 2;

/// Time after which a refused client may try again, s.
const RETRY_AFTER: u32 = 10;

/// State that all connections share.
pub(super) struct State {
    pub(super) readings: Readings,
    pub(super) traces: Traces,
    pub(super) auth: Auth,
    taken: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    histories: Arc<Semaphore>,
    incidents: Arc<Semaphore>,
    messages: Arc<Semaphore>,
    encodings: Arc<Semaphore>,
    /// Becomes true when the agent stops.
    stopping: watch::Receiver<bool>,
}

impl State {
    pub(super) fn new(
        readings: Readings,
        traces: Traces,
        auth: Auth,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            readings,
            traces,
            auth,
            taken: Arc::new(Semaphore::new(MAX_TRACES)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            histories: Arc::new(Semaphore::new(MAX_HISTORIES)),
            incidents: Arc::new(Semaphore::new(MAX_INCIDENTS)),
            messages: Arc::new(Semaphore::new(MAX_MESSAGES)),
            encodings: Arc::new(Semaphore::new(MAX_ENCODINGS)),
            stopping,
        }
    }

    /// A place for a stream, released when dropped.
    pub(super) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        place(&self.streams, || format!("{MAX_STREAMS} streams are open"))
    }

    /// A place for a history, released when dropped.
    pub(super) fn history(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let text = || format!("{MAX_HISTORIES} histories are being read");
        place(&self.histories, text)
    }

    /// A place for reading incidents, released when dropped.
    pub(super) fn incident(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let text = || format!("{MAX_INCIDENTS} clients are reading incidents");
        place(&self.incidents, text)
    }

    /// A place for a trace, released when dropped.
    pub(super) fn trace(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let text = || format!("{MAX_TRACES} traces are being taken or sent");
        place(&self.taken, text)
    }

    /// A place for a message with alerts, released when dropped.
    pub(super) fn message(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let text = || format!("{MAX_MESSAGES} messages are being read");
        place(&self.messages, text)
    }

    /// Runs work that takes milliseconds apart from the thread that serves clients. `None`
    /// if it panicked.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.encodings).acquire_owned().await.ok()?;
        let working = tokio::task::spawn_blocking(move || {
            let result = work();
            // Held until the work ends, even if the client has disconnected.
            drop(permit);
            result
        });
        working.await.ok()
    }

    /// Waits until the agent stops.
    pub(super) async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the server has ended.
        drop(stopping.wait_for(|stopping| *stopping).await);
    }
}

fn place(
    of: &Arc<Semaphore>,
    taken: impl FnOnce() -> String,
) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(of).try_acquire_owned().map_err(|_| {
        let text = format!("{}, which is the limit; try again", taken());
        Problem::for_now(text, RETRY_AFTER)
    })
}

/// A request with its client, for an answer that is made while it is sent.
pub(super) struct Caller {
    pub(super) state: Arc<State>,
    /// The configuration at the start of the connection.
    pub(super) config: Arc<WebConfig>,
    pub(super) peer: IpAddr,
    pub(super) head: Parts,
    pub(super) limit: TimeLimit,
}

impl Caller {
    /// Returns what the client may see now.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub(super) async fn admit(&self) -> Result<Access, Refusal> {
        let auth = &self.state.auth;
        auth.admit(&self.config, self.peer, &self.head).await
    }

    /// Decides whether the client may trace VMs, or cause it with an alert.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub(super) async fn admit_trace(&self) -> Result<(), Refusal> {
        let auth = &self.state.auth;
        auth.admit_trace(&self.config, self.peer, &self.head).await
    }

    /// Returns the namespaces among `wanted` whose pods the owner of `token` may see.
    ///
    /// # Errors
    ///
    /// If the token is not valid any more, or not all of them could be reviewed.
    pub(super) async fn namespaces(
        &self,
        token: &str,
        wanted: &Namespaces,
    ) -> Result<Namespaces, Refusal> {
        self.state.auth.namespaces(self.peer, token, wanted).await
    }

    /// Whether the client wants only the head of the answer.
    pub(super) fn is_head(&self) -> bool {
        self.head.method == Method::HEAD
    }

    /// The request's query string.
    pub(super) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }
}

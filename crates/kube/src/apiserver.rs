//! A watch of one node's pods.
//!
//! ```text
//!          ┌─ streaming list ─┐
//! nothing ─┤                  ├─► all pods, a version ─► changes, bookmarks ─┐
//!          └─ pages of a list ┘        ▲                  │ ended: go on     │
//!             (where refused)          └──────────────────┘                  │
//!     ▲                          410: the version is too old, list anew      │
//!     └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `watcher` of kube-runtime (`kube-runtime/src/watcher.rs`) does the same, but passes on
//! neither bookmarks nor successful reconnects. On a node without changes only these prove
//! that the names are still correct. It also does not fall back to pages of a list where
//! streaming lists are refused.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::request::Request;
use kube::core::response::Status;
use virtlens_model::vocab::Pod;

use crate::backoff::Backoff;
use crate::cluster::{Cluster, chain, is_too_long, too_long};
use crate::store::{MAX_PODS, Store};
use crate::wire::{WirePod, WirePods};

const PODS: &str = "/api/v1/pods";
/// Pods per page of a list.
const PAGE: u32 = 500;
/// Limit on the pages of one list. Twice the number of stored pods fits; an endless list
/// does not.
const MAX_PAGES: usize = 2 * MAX_PODS / PAGE as usize;
/// API servers send a bookmark each minute (`bookmarkFrequency`,
/// `k8s.io/apiserver/pkg/storage/cacher/cacher.go`), but do not guarantee it ("clients
/// shouldn't assume bookmarks are returned at any specific interval", `WatchOptions`,
/// `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`). After this time without an event the
/// watch continues on a new connection, which shows whether the server is reachable. A
/// request without an answer for this time has failed.
const SILENCE: Duration = Duration::from_secs(150);
/// Annotation of the bookmark that ends the initial list of pods (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// HTTP status: the requested version is no longer kept.
const GONE: u16 = 410;
/// HTTP status: the server cannot authenticate the client.
const UNKNOWN: u16 = 401;
/// HTTP status: the client is authenticated, but not authorized.
const FORBIDDEN: u16 = 403;
/// HTTP statuses with which a server rejects parameters that it does not know or may not
/// serve.
const NO_STREAMS: [u16; 2] = [400, 422];
/// Statuses of an error event within the stream. A server whose etcd is older than 3.5
/// accepts the request, and then rejects it there with a different error.
const NO_STREAMS_INSIDE: [u16; 3] = [400, 422, 500];

/// Watches the pods of a node. Never returns: retries with a growing pause.
pub(crate) async fn follow(cluster: &Cluster, node: &str, store: &Store) {
    follow_with(cluster, node, store, SILENCE).await;
}

async fn follow_with(cluster: &Cluster, node: &str, store: &Store, silence: Duration) {
    let mut follower = Follower {
        store,
        silence,
        selector: format!("spec.nodeName={node}"),
        version: None,
        expired: false,
        streams: true,
    };
    let mut backoff = Backoff::default();
    let mut has_paused = true;
    loop {
        let began = Instant::now();
        let mut is_list_due = false;
        match cluster.client().await {
            Ok(client) => match follower.session(&client).await {
                Ok(()) => {}
                Err(SessionError::Expired) => {
                    if follower.expired && follower.version.is_none() {
                        // The server demands a new list, and that is what just failed.
                        store.fail(
                            "the API server's list of pods expired while it was read".to_owned(),
                        );
                    }
                    is_list_due = follower.version.is_some();
                    follower.version = None;
                    follower.expired = true;
                }
                Err(SessionError::Silent) => store.fail(format!(
                    "the API server has not answered for {} s",
                    silence.as_secs()
                )),
                Err(SessionError::NoStreams(why)) => {
                    tracing::info!(
                        why,
                        "the API server refused streaming lists; listing pods in pages"
                    );
                    follower.streams = false;
                }
                Err(SessionError::Endless(why)) => store.fail(format!("the API server: {why}")),
                Err(SessionError::Refused { why, .. } | SessionError::Broken(why)) => {
                    store.fail(why);
                }
            },
            Err(why) => store.fail(why.to_string()),
        }
        // After an outage the pause is long, and names stay outdated until the list. So it is
        // requested at once, but only once between two pauses.
        if is_list_due && has_paused {
            has_paused = false;
            continue;
        }
        tokio::time::sleep(backoff.after(began.elapsed())).await;
        has_paused = true;
    }
}

struct Follower<'s> {
    store: &'s Store,
    /// Maximum silence of the server.
    silence: Duration,
    selector: String,
    /// The version up to which changes are known; `None` until the list of pods is
    /// complete.
    version: Option<String>,
    /// The last known version has expired: the next one must be newer.
    expired: bool,
    /// Whether the server is assumed to support streaming lists.
    streams: bool,
}

/// Reason for the end of a session.
#[derive(Debug)]
enum SessionError {
    /// Changes since the version are no longer kept.
    Expired,
    /// The server does not support streaming lists.
    NoStreams(String),
    /// The server rejects the request with an HTTP status.
    Refused { code: u16, why: String },
    /// The answer exceeds the size limit.
    Endless(String),
    /// The server does not answer.
    Silent,
    /// The connection or the protocol failed.
    Broken(String),
}

impl Follower<'_> {
    /// Watches the pods until the server ends the stream, as it does every few minutes.
    async fn session(&mut self, client: &Client) -> Result<(), SessionError> {
        let params = WatchParams::default().fields(&self.selector);
        if self.version.is_none() && !self.streams {
            self.list(client).await?;
        }
        let Some(version) = self.version.clone() else {
            // "0" accepts any version from the server's cache. After a version has
            // expired the latest is required: a server that lags would bring back deleted
            // pods.
            let version = if self.expired { "" } else { "0" };
            let request = Request::new(PODS).watch(&params.initial_events(), version);
            let refused = |error| no_streams(error, &NO_STREAMS);
            let mut events = pin!(self.open(client, request).await.map_err(refused)?);
            let refused = |error| no_streams(error, &NO_STREAMS_INSIDE);
            self.initial(&mut events).await.map_err(refused)?;
            return self.changes(&mut events).await;
        };
        let request = Request::new(PODS).watch(&params, &version);
        let mut events = pin!(self.open(client, request).await?);
        self.store.confirm();
        self.changes(&mut events).await
    }

    /// Lists all pods, page by page.
    async fn list(&mut self, client: &Client) -> Result<(), SessionError> {
        let mut pods = Vec::new();
        let mut params = ListParams::default().fields(&self.selector).limit(PAGE);
        if !self.expired {
            // From the server's cache: a thousand agents must not make it read etcd.
            params = params.match_any();
        }
        for _ in 0..MAX_PAGES {
            let request = Request::new(PODS).list(&params);
            let request = request.map_err(|error| SessionError::Broken(chain(&error)))?;
            let answer = tokio::time::timeout(self.silence, client.request::<WirePods>(request));
            let answer = answer.await.map_err(|_| SessionError::Silent)??;
            pods.extend(answer.items.iter().map(WirePod::keep));
            if answer.metadata.next.is_empty() {
                self.store.replace(pods);
                self.version = Some(answer.metadata.resource_version);
                self.expired = false;
                return Ok(());
            }
            params = params.continue_token(&answer.metadata.next);
        }
        let why = format!("its list of pods exceeds {MAX_PAGES} pages of {PAGE} pods");
        Err(SessionError::Endless(why))
    }

    /// Lists all pods from a stream that continues with their changes.
    async fn initial(
        &mut self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<(), SessionError> {
        let mut pods: Vec<(Arc<str>, Pod)> = Vec::new();
        loop {
            match self.next(events).await? {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => pods.push(pod.keep()),
                Some(WatchEvent::Bookmark(bookmark))
                    if bookmark
                        .metadata
                        .annotations
                        .contains_key(INITIAL_EVENTS_END) =>
                {
                    self.version = Some(bookmark.metadata.resource_version);
                    self.expired = false;
                    self.store.replace(pods);
                    return Ok(());
                }
                Some(WatchEvent::Bookmark(_)) => {
                    let why = "received a bookmark before the end of the initial list";
                    return Err(SessionError::NoStreams(why.to_owned()));
                }
                Some(_) => {}
                None => {
                    let why = "the API server ended the stream before the end of the initial list";
                    return Err(SessionError::Broken(why.to_owned()));
                }
            }
        }
    }

    async fn changes(
        &mut self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<(), SessionError> {
        let mut received = false;
        loop {
            let event = match self.next(events).await {
                Ok(Some(event)) => event,
                // The stream is long, but no single event is: continue in another stream.
                Err(SessionError::Endless(_)) if received => return Ok(()),
                // Either the server ended the stream, nothing changed, or the connection
                // is dead. A new connection shows which.
                Ok(None) | Err(SessionError::Silent) => return Ok(()),
                Err(error) => return Err(error),
            };
            received = true;
            self.version = Some(match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    let (uid, kept) = pod.keep();
                    self.store.put(uid, kept);
                    pod.metadata.resource_version
                }
                WatchEvent::Deleted(pod) => {
                    self.store.remove(pod.uid());
                    pod.metadata.resource_version
                }
                WatchEvent::Bookmark(bookmark) => {
                    self.store.confirm();
                    bookmark.metadata.resource_version
                }
                WatchEvent::Error(status) => return Err(refusal(&status)),
            });
        }
    }

    async fn open(
        &self,
        client: &Client,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<impl Stream<Item = Event> + use<>, SessionError> {
        let request = request.map_err(|error| SessionError::Broken(chain(&error)))?;
        let answer = tokio::time::timeout(self.silence, client.request_events::<WirePod>(request));
        Ok(Box::pin(answer.await.map_err(|_| SessionError::Silent)??))
    }

    async fn next(
        &self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<Option<WatchEvent<WirePod>>, SessionError> {
        let event = tokio::time::timeout(self.silence, events.next()).await;
        match event.map_err(|_| SessionError::Silent)?.transpose()? {
            Some(WatchEvent::Error(status)) => Err(refusal(&status)),
            event => Ok(event),
        }
    }
}

type Event = kube::Result<WatchEvent<WirePod>>;

impl From<kube::Error> for SessionError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => refusal(status),
            long if is_too_long(long) => Self::Endless(too_long()),
            other => Self::Broken(format!("cannot query the API server: {}", chain(other))),
        }
    }
}

fn refusal(status: &Status) -> SessionError {
    if status.code == GONE {
        return SessionError::Expired;
    }
    let remedy = match status.code {
        UNKNOWN => "; the service account's token is invalid or has expired",
        FORBIDDEN => "; grant list and watch on pods to the agent's service account",
        _ => "",
    };
    SessionError::Refused {
        code: status.code,
        why: format!(
            "the API server refused the request ({}): {}{remedy}",
            status.code, status.message
        ),
    }
}

/// Statuses in `codes` mean that the server rejects the stream; any other status concerns
/// the client or the time of the request.
fn no_streams(error: SessionError, codes: &[u16]) -> SessionError {
    match error {
        SessionError::Refused { code, why } if codes.contains(&code) => {
            SessionError::NoStreams(why)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;

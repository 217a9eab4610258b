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
//! kube-runtime's watcher does as much, but keeps bookmarks to itself, which prove on a
//! node without changes that the names are still true.

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
/// Pods in one answer to a list.
const PAGE: u32 = 500;
/// Answers to one list. Twice what is kept has room in them; a list without an end does
/// not.
const MAX_PAGES: usize = 2 * MAX_PODS / PAGE as usize;
/// API servers send a bookmark each minute (`bookmarkFrequency`,
/// `k8s.io/apiserver/pkg/storage/cacher/cacher.go`), but promise none ("clients shouldn't
/// assume bookmarks are returned at any specific interval", `WatchOptions`,
/// `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`). After that long without a word the
/// changes are followed on another connection, which shows whether the server is there;
/// a request that has no answer for that long has failed.
const SILENCE: Duration = Duration::from_secs(150);
/// The bookmark behind the pods that there were (KEP-3157).
const ALL_TOLD: &str = "k8s.io/initial-events-end";
/// The version that is asked for is no longer kept.
const GONE: u16 = 410;
/// The server does not know who asks.
const UNKNOWN: u16 = 401;
/// It knows, and does not allow it.
const FORBIDDEN: u16 = 403;
/// How a server refuses parameters that it does not know or may not serve.
const NO_STREAMS: [u16; 2] = [400, 422];
/// One whose etcd is older than 3.5 takes the request, and then refuses within the
/// stream with an error of its own.
const NO_STREAMS_INSIDE: [u16; 3] = [400, 422, 500];

/// Never ends: tries again, ever more slowly.
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
    loop {
        let began = Instant::now();
        match cluster.client().await {
            Ok(client) => match follower.session(&client).await {
                Ok(()) => {}
                Err(Trouble::Expired) => {
                    if follower.expired && follower.version.is_none() {
                        // It is told to list anew, and does already.
                        store.fail("the API server's lists of pods expire unread".to_owned());
                    }
                    follower.version = None;
                    follower.expired = true;
                }
                Err(Trouble::Silent) => store.fail(format!(
                    "the API server has been silent for {} s",
                    silence.as_secs()
                )),
                Err(Trouble::NoStreams(why)) => {
                    tracing::info!(why, "streaming lists are refused; pods are listed in pages");
                    follower.streams = false;
                }
                Err(Trouble::Endless(why)) => store.fail(format!("the API server: {why}")),
                Err(Trouble::Refused { why, .. } | Trouble::Broken(why)) => store.fail(why),
            },
            Err(why) => store.fail(why.to_string()),
        }
        tokio::time::sleep(backoff.after(began.elapsed())).await;
    }
}

struct Follower<'s> {
    store: &'s Store,
    /// How long a server may be silent.
    silence: Duration,
    selector: String,
    /// Up to where the changes are known; `None` before all pods were told.
    version: Option<String>,
    /// The version that was known is too old: what is told next has to be newer.
    expired: bool,
    /// Whether the server is thought to have streaming lists.
    streams: bool,
}

/// Why a session ended.
#[derive(Debug)]
enum Trouble {
    /// Changes since the version are no longer kept.
    Expired,
    /// The server does not stream lists.
    NoStreams(String),
    /// The server refuses, with an HTTP status.
    Refused { code: u16, why: String },
    /// It says more than is listened to.
    Endless(String),
    /// It does not answer.
    Silent,
    /// There is no talking to it.
    Broken(String),
}

impl Follower<'_> {
    /// Follows the pods until the server ends the stream, as it does every few minutes.
    async fn session(&mut self, client: &Client) -> Result<(), Trouble> {
        let params = WatchParams::default().fields(&self.selector);
        if self.version.is_none() && !self.streams {
            self.list(client).await?;
        }
        let Some(version) = self.version.clone() else {
            // Any version out of the server's memory; once one has expired the latest, or
            // a server that lags would bring back what was gone.
            let version = if self.expired { "" } else { "0" };
            let request = Request::new(PODS).watch(&params.initial_events(), version);
            let refused = |trouble| no_streams(trouble, &NO_STREAMS);
            let mut events = pin!(self.open(client, request).await.map_err(refused)?);
            let refused = |trouble| no_streams(trouble, &NO_STREAMS_INSIDE);
            self.initial(&mut events).await.map_err(refused)?;
            return self.changes(&mut events).await;
        };
        let request = Request::new(PODS).watch(&params, &version);
        let mut events = pin!(self.open(client, request).await?);
        self.store.confirm();
        self.changes(&mut events).await
    }

    /// All pods, page by page.
    async fn list(&mut self, client: &Client) -> Result<(), Trouble> {
        let mut pods = Vec::new();
        let mut params = ListParams::default().fields(&self.selector).limit(PAGE);
        if !self.expired {
            // Out of the server's memory: a thousand agents do not make it read its store.
            params = params.match_any();
        }
        for _ in 0..MAX_PAGES {
            let request = Request::new(PODS).list(&params);
            let request = request.map_err(|error| Trouble::Broken(chain(&error)))?;
            let answer = tokio::time::timeout(self.silence, client.request::<WirePods>(request));
            let answer = answer.await.map_err(|_| Trouble::Silent)??;
            pods.extend(answer.items.iter().map(WirePod::keep));
            if answer.metadata.next.is_empty() {
                self.store.replace(pods);
                self.version = Some(answer.metadata.resource_version);
                self.expired = false;
                return Ok(());
            }
            params = params.continue_token(&answer.metadata.next);
        }
        let why = format!("its list of pods goes on beyond {MAX_PAGES} pages of {PAGE}");
        Err(Trouble::Endless(why))
    }

    /// All pods, out of a stream that goes on with their changes.
    async fn initial(
        &mut self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<(), Trouble> {
        let mut pods: Vec<(Arc<str>, Pod)> = Vec::new();
        loop {
            match self.next(events).await? {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => pods.push(pod.keep()),
                Some(WatchEvent::Bookmark(mark))
                    if mark.metadata.annotations.contains_key(ALL_TOLD) =>
                {
                    self.version = Some(mark.metadata.resource_version);
                    self.expired = false;
                    self.store.replace(pods);
                    return Ok(());
                }
                Some(WatchEvent::Bookmark(_)) => {
                    let why = "a bookmark came before the end of the list was told";
                    return Err(Trouble::NoStreams(why.to_owned()));
                }
                Some(_) => {}
                None => {
                    let why = "the API server ended the stream before all pods were told";
                    return Err(Trouble::Broken(why.to_owned()));
                }
            }
        }
    }

    async fn changes(
        &mut self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<(), Trouble> {
        let mut heard = false;
        loop {
            let event = match self.next(events).await {
                Ok(Some(event)) => event,
                // A long stream and no long event: it goes on in another.
                Err(Trouble::Endless(_)) if heard => return Ok(()),
                // The server ended the stream; or nothing changed, or the connection is
                // dead, and another one shows which.
                Ok(None) | Err(Trouble::Silent) => return Ok(()),
                Err(trouble) => return Err(trouble),
            };
            heard = true;
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
                WatchEvent::Bookmark(mark) => {
                    self.store.confirm();
                    mark.metadata.resource_version
                }
                WatchEvent::Error(status) => return Err(refusal(&status)),
            });
        }
    }

    async fn open(
        &self,
        client: &Client,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<impl Stream<Item = Event> + use<>, Trouble> {
        let request = request.map_err(|error| Trouble::Broken(chain(&error)))?;
        let answer = tokio::time::timeout(self.silence, client.request_events::<WirePod>(request));
        Ok(Box::pin(answer.await.map_err(|_| Trouble::Silent)??))
    }

    async fn next(
        &self,
        events: &mut (impl Stream<Item = Event> + Unpin),
    ) -> Result<Option<WatchEvent<WirePod>>, Trouble> {
        let event = tokio::time::timeout(self.silence, events.next()).await;
        match event.map_err(|_| Trouble::Silent)?.transpose()? {
            Some(WatchEvent::Error(status)) => Err(refusal(&status)),
            event => Ok(event),
        }
    }
}

type Event = kube::Result<WatchEvent<WirePod>>;

impl From<kube::Error> for Trouble {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) => refusal(status),
            long if is_too_long(long) => Self::Endless(too_long()),
            other => Self::Broken(format!("the API server cannot be asked: {}", chain(other))),
        }
    }
}

fn refusal(status: &Status) -> Trouble {
    if status.code == GONE {
        return Trouble::Expired;
    }
    let remedy = match status.code {
        UNKNOWN => "; the token is not taken: it may have run out",
        FORBIDDEN => "; grant list and watch on pods to the agent's service account",
        _ => "",
    };
    Trouble::Refused {
        code: status.code,
        why: format!(
            "the API server refuses ({}): {}{remedy}",
            status.code, status.message
        ),
    }
}

/// A refusal with one of these is meant for the stream, any other for who asks or when.
fn no_streams(trouble: Trouble, codes: &[u16]) -> Trouble {
    match trouble {
        Trouble::Refused { code, why } if codes.contains(&code) => Trouble::NoStreams(why),
        other => other,
    }
}

#[cfg(test)]
mod tests;

//! Maps pod uids to pod names and specs.
//!
//! A cgroup path contains only a pod's uid. The name and the resource requests come from
//! one of three sources, on a separate thread, so that no reading of the host ever waits
//! for a network:
//!
//! ```text
//! API server ── watch of this node's pods ──┐
//! kubelet ───── /pods, when names lack ─────┼──► store ──► PodsState, at each reading
//! file ──────── a list of pods, re-read ────┘
//! ```
//!
//! If the source fails, the last known pods stay; their age and the reason of the failure
//! are reported with them. Pods on other nodes are not kept, and of a pod only the fields
//! of [`virtlens_model::vocab::pod`]: no environment, no names of secrets.

#![forbid(unsafe_code)]
// No input may panic the agent.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

mod apiserver;
mod backoff;
mod cluster;
mod fleet;
mod polled;
mod remote;
mod reviewer;
mod store;
mod wire;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use cluster::{Cluster, Kubelet};
pub use fleet::{
    ClusterAccess, Fleet, Found, NodeAgent, Pace, Route, Scope, Token, TunnelOptions, histories,
    incidents, poll, snapshots,
};
pub use polled::{ListedPods, parse_pods};
pub use remote::{Body, Endpoint, Remote, TraceRequest, Unanswered};
pub use reviewer::{Reviewer, Right};
pub use store::PodsState;
use store::Store;
use tokio::sync::{Notify, oneshot};

/// Source of pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The API server: a watch of the pods of one node.
    ApiServer {
        /// How to reach it.
        cluster: Cluster,
        /// The Kubernetes name of the node whose pods are watched.
        node: String,
    },
    /// The node's kubelet, queried on demand, at most every 15 s.
    Kubelet(Kubelet),
    /// A file with a list of pods, as `kubectl get pods -A -o json` writes it.
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// The Kubernetes name of the node whose pods are kept.
        node: String,
    },
}

impl Source {
    /// Name of the source, from a closed set.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ApiServer { .. } => "apiserver",
            Self::Kubelet(_) => "kubelet",
            Self::File { .. } => "file",
        }
    }
}

/// The names of a node's pods, updated until this is dropped.
#[derive(Debug)]
pub struct Names {
    store: Arc<Store>,
    wanted: Arc<Notify>,
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Names {
    /// Starts to follow `source`.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(source: Source) -> std::io::Result<Self> {
        let store = Arc::new(Store::default());
        let wanted = Arc::new(Notify::new());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (thread_store, thread_wanted) = (Arc::clone(&store), Arc::clone(&wanted));
        thread::Builder::new()
            .name("pod-names".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = follow(source, &thread_store, &thread_wanted) => {}
                        _ = stopped => {}
                    }
                });
                // Do not wait for a pending name resolution.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            store,
            wanted,
            _stop: stop,
        })
    }

    /// Returns the present state. Never blocks.
    pub fn read(&self) -> PodsState {
        self.wanted.notify_one();
        self.store.read()
    }

    /// Waits until the source has answered or failed once, but no longer than `timeout`.
    pub fn wait(&self, timeout: Duration) {
        self.wanted.notify_one();
        self.store.wait(timeout);
    }
}

/// Never returns by itself.
async fn follow(source: Source, store: &Store, wanted: &Notify) {
    match source {
        Source::ApiServer { cluster, node } => apiserver::follow(&cluster, &node, store).await,
        Source::Kubelet(kubelet) => polled::kubelet(&kubelet, store, wanted).await,
        Source::File { path, node } => polled::file(&path, &node, store, wanted).await,
    }
}

//! Who a pod uid is.
//!
//! A cgroup path tells a pod's uid and no more. Its name and what was asked for it
//! come from one of three sources, on a thread of its own, so that no reading of the
//! host ever waits for a network:
//!
//! ```text
//! API server ── watch of this node's pods ──┐
//! kubelet ───── /pods, when names lack ─────┼──► store ──► Told, at each reading
//! file ──────── a list of pods, re-read ────┘
//! ```
//!
//! What was told stays when its source falls silent; how old it is, and why, is told
//! with it. Nothing is kept of pods on other nodes, and of a pod only what
//! [`virtlens_model::vocab::pod`] has room for: no environment, no secrets' names.

#![forbid(unsafe_code)]
// Nothing that is read may be able to end the agent.
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
mod polled;
mod reviewer;
mod store;
mod wire;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use cluster::{Cluster, Kubelet};
pub use polled::{ListedPods, parse_pods};
pub use reviewer::{Review, Reviewer};
use store::Store;
pub use store::Told;
use tokio::sync::{Notify, oneshot};

/// Where names of pods come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The API server: a watch of the pods of one node.
    ApiServer {
        /// How it is reached.
        cluster: Cluster,
        /// The node whose pods are followed, as Kubernetes calls it.
        node: String,
    },
    /// The node's kubelet: asked when somebody reads, at most every 15 s.
    Kubelet(Kubelet),
    /// A file with a list of pods, as `kubectl get pods -A -o json` writes it.
    File {
        /// Where it is.
        path: std::path::PathBuf,
        /// The node whose pods are kept, as Kubernetes calls it.
        node: String,
    },
}

impl Source {
    /// Its name, from a closed set.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ApiServer { .. } => "apiserver",
            Self::Kubelet(_) => "kubelet",
            Self::File { .. } => "file",
        }
    }
}

/// The names of a node's pods, kept up to date while this lives.
#[derive(Debug)]
pub struct Names {
    store: Arc<Store>,
    wanted: Arc<Notify>,
    /// Dropped with this, which ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Names {
    /// Starts to follow `source`.
    ///
    /// # Errors
    ///
    /// When there can be no thread for it.
    pub fn start(source: Source) -> std::io::Result<Self> {
        let store = Arc::new(Store::default());
        let wanted = Arc::new(Notify::new());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (kept, asked) = (Arc::clone(&store), Arc::clone(&wanted));
        thread::Builder::new()
            .name("pod-names".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = follow(source, &kept, &asked) => {}
                        _ = stopped => {}
                    }
                });
                // A name that is being resolved is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            store,
            wanted,
            _stop: stop,
        })
    }

    /// What is known now. Never waits.
    pub fn read(&self) -> Told {
        self.wanted.notify_one();
        self.store.read()
    }

    /// Waits until the source has answered once, well or not, but no longer than
    /// `patience`.
    pub fn wait(&self, patience: Duration) {
        self.wanted.notify_one();
        self.store.wait(patience);
    }
}

/// Never ends by itself.
async fn follow(source: Source, store: &Store, wanted: &Notify) {
    match source {
        Source::ApiServer { cluster, node } => apiserver::follow(&cluster, &node, store).await,
        Source::Kubelet(kubelet) => polled::kubelet(&kubelet, store, wanted).await,
        Source::File { path, node } => polled::file(&path, &node, store, wanted).await,
    }
}

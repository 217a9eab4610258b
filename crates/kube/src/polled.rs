//! Sources that are polled, and only while there are readers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;
use virtlens_model::vocab::Pod;

use crate::backoff::Backoff;
use crate::cluster::{Kubelet, MAX_ANSWER_BYTES, chain, is_too_long, too_long};
use crate::store::Store;
use crate::wire::{WirePod, WirePods};

/// Maximum age of kubelet's answer. Each one costs kubelet a copy of all its pods.
const KUBELET_AGE: Duration = Duration::from_secs(15);
/// Minimum time between checks of the file.
const FILE_AGE: Duration = Duration::from_secs(1);
/// A kubelet with 500 pods sends some megabytes and needs far less time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Queries a kubelet for its pods when they are `wanted` and the last answer is old.
pub(crate) async fn kubelet(kubelet: &Kubelet, store: &Store, wanted: &Notify) {
    let mut backoff = Backoff::default();
    loop {
        wanted.notified().await;
        let began = Instant::now();
        match ask(kubelet).await {
            Ok(pods) => {
                store.replace(pods.items.iter().map(WirePod::keep));
                backoff = Backoff::default();
                tokio::time::sleep(KUBELET_AGE).await;
            }
            Err(why) => {
                store.fail(why);
                tokio::time::sleep(backoff.after(began.elapsed())).await;
            }
        }
    }
}

async fn ask(kubelet: &Kubelet) -> Result<WirePods, String> {
    let client = kubelet.client().map_err(|error| error.to_string())?;
    let request = http::Request::get("/pods")
        .body(Vec::new())
        .map_err(|error| chain(&error))?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.request::<WirePods>(request));
    match answer.await {
        Ok(Ok(pods)) => Ok(pods),
        Ok(Err(kube::Error::Api(status))) => {
            let remedy = match status.code {
                401 => "; enable authentication.webhook in the kubelet's configuration",
                403 => "; grant get on nodes/pods (before Kubernetes 1.33 nodes/proxy)",
                _ => "",
            };
            let message = &status.message;
            Err(format!(
                "the kubelet refused the request ({}): {message}{remedy}",
                status.code
            ))
        }
        Ok(Err(error)) if is_too_long(&error) => Err(format!("the kubelet: {}", too_long())),
        Ok(Err(error)) => Err(format!("cannot query the kubelet: {}", chain(&error))),
        Err(_) => Err(format!(
            "the kubelet has not answered in {} s",
            ANSWER_TIMEOUT.as_secs()
        )),
    }
}

/// Reads a file of pods when they are `wanted` and the file has changed.
pub(crate) async fn file(path: &Path, node: &str, store: &Store, wanted: &Notify) {
    let mut known: Option<Stamp> = None;
    loop {
        wanted.notified().await;
        match read(path, node, &mut known) {
            Ok(Some(pods)) => store.replace(pods),
            Ok(None) => store.confirm(),
            Err(why) => {
                known = None;
                store.fail(format!("{}: {why}", path.display()));
            }
        }
        tokio::time::sleep(FILE_AGE).await;
    }
}

/// Detects a changed file.
type Stamp = (u64, Option<SystemTime>);

/// The node's pods in the file; `None` if the file still has the stamp `known`.
fn read(path: &Path, node: &str, known: &mut Option<Stamp>) -> Result<Option<ListedPods>, String> {
    let meta = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !meta.is_file() || meta.len() > MAX_ANSWER_BYTES as u64 {
        let most = MAX_ANSWER_BYTES >> 20;
        return Err(format!("not a regular file of at most {most} MiB"));
    }
    let stamp = (meta.len(), meta.modified().ok());
    if *known == Some(stamp) {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let pods = parse_pods(&bytes, node)?;
    *known = Some(stamp);
    Ok(Some(pods))
}

/// Pods in list order, each with its uid.
pub type ListedPods = Vec<(Arc<str>, Pod)>;

/// Parses the pods on `node` from a list in the format of `kubectl get pods -A -o json`.
/// A pod without a node counts for every node.
///
/// # Errors
///
/// If the text is not such a list: the error and its line.
pub fn parse_pods(json: &[u8], node: &str) -> Result<ListedPods, String> {
    let pods: WirePods = serde_json::from_slice(json)
        .map_err(|error| format!("{error} (expected the output of kubectl get pods -A -o json)"))?;
    let ours = pods.items.iter().filter(|pod| pod.is_on(node));
    Ok(ours.map(WirePod::keep).collect())
}

//! Authenticates bearer tokens and authorizes their requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::{Cluster, Stamp, chain};

/// Timeout of a review. A scrape waits for it, so it is less than Prometheus' own 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a review by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// The request is authorized.
    Allowed,
    /// The user is authenticated, but not authorized.
    Forbidden,
    /// The token is invalid or has expired.
    Unknown,
}

/// Limit on the reviews that wait for the thread: more than an agent has connections.
const MAX_WAITING: usize = 512;

/// Has the API server review the agent's clients (`TokenReview`, then
/// `SubjectAccessReview` of a non-resource URL, as kube-rbac-proxy does).
///
/// Reviews run on a separate thread, which keeps one client until its files change.
/// Creating a client reads certificates and may run a program, and no scrape must wait
/// for that.
#[derive(Debug, Clone)]
pub struct Reviewer {
    sender: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Question {
    token: String,
    path: String,
    answer: oneshot::Sender<Result<Review, String>>,
}

#[derive(Debug, Deserialize)]
struct Reviewed<S> {
    status: S,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Token {
    authenticated: bool,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Access {
    allowed: bool,
}

impl Reviewer {
    /// Starts the thread, which queries `cluster` and ends with the last clone of the
    /// reviewer.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(cluster: Cluster) -> io::Result<Self> {
        let (sender, questions) = mpsc::channel(MAX_WAITING);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        thread::Builder::new()
            .name("token-review".to_owned())
            .spawn(move || {
                runtime.block_on(answer_all(cluster, questions));
                runtime.shutdown_background();
            })?;
        Ok(Self { sender })
    }

    /// Reviews whether the owner of `token` may get `path`.
    ///
    /// # Errors
    ///
    /// If the API server cannot be queried, or denies the agent the review: the reason.
    pub async fn may_get(&self, token: &str, path: &str) -> Result<Review, String> {
        let (answer, answered) = oneshot::channel();
        let question = Question {
            token: token.to_owned(),
            path: path.to_owned(),
            answer,
        };
        let review = async {
            let stopped = || "the agent is stopping".to_owned();
            let sent = self.sender.send(question).await;
            sent.map_err(|_| stopped())?;
            answered.await.map_err(|_| stopped())?
        };
        tokio::time::timeout(TIMEOUT, review)
            .await
            .unwrap_or_else(|_| {
                let seconds = TIMEOUT.as_secs();
                Err(format!("the API server has not answered in {seconds} s"))
            })
    }
}

/// Answers questions until the last sender is dropped.
async fn answer_all(cluster: Cluster, mut questions: mpsc::Receiver<Question>) {
    let mut kept: Option<(Client, Vec<Stamp>)> = None;
    // Set by a failed review: the client's inputs, such as an address, may be outdated.
    let is_doubted = Arc::new(AtomicBool::new(false));
    while let Some(question) = questions.recv().await {
        // The caller has given up meanwhile.
        if question.answer.is_closed() {
            continue;
        }
        let files = cluster.stamps();
        let doubted = is_doubted.swap(false, Ordering::Relaxed);
        let usable = kept.take().filter(|(_, seen)| !doubted && *seen == files);
        let client = match usable {
            Some((client, _)) => client,
            None => match cluster.client().await {
                Ok(client) => client,
                Err(error) => {
                    drop(question.answer.send(Err(error.to_string())));
                    continue;
                }
            },
        };
        kept = Some((client.clone(), files));
        let is_doubted = Arc::clone(&is_doubted);
        tokio::spawn(async move {
            let Question {
                token,
                path,
                mut answer,
            } = question;
            tokio::select! {
                () = answer.closed() => is_doubted.store(true, Ordering::Relaxed),
                reviewed = review(&client, &token, &path) => {
                    is_doubted.fetch_or(reviewed.is_err(), Ordering::Relaxed);
                    drop(answer.send(reviewed));
                }
            }
        });
    }
}

async fn review(client: &Client, token: &str, path: &str) -> Result<Review, String> {
    let spec = json!({"token": token});
    let group = "authentication.k8s.io/v1";
    let known: Token = create(client, group, "TokenReview", "tokenreviews", spec).await?;
    if !known.authenticated {
        return Ok(Review::Unknown);
    }
    let spec = json!({
        "user": known.user.username,
        "uid": known.user.uid,
        "groups": known.user.groups,
        "extra": known.user.extra,
        "nonResourceAttributes": {"path": path, "verb": "get"},
    });
    let (group, kind) = ("authorization.k8s.io/v1", "SubjectAccessReview");
    let access: Access = create(client, group, kind, "subjectaccessreviews", spec).await?;
    Ok(if access.allowed {
        Review::Allowed
    } else {
        Review::Forbidden
    })
}

async fn create<S: for<'de> Deserialize<'de>>(
    client: &Client,
    group: &str,
    kind: &str,
    plural: &str,
    spec: Value,
) -> Result<S, String> {
    let review = json!({"apiVersion": group, "kind": kind, "spec": spec});
    let request = http::Request::post(format!("/apis/{group}/{plural}"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| chain(&error))?;
    match client.request::<Reviewed<S>>(request).await {
        Ok(reviewed) => Ok(reviewed.status),
        Err(kube::Error::Api(status)) => {
            let remedy = if status.code == 403 {
                format!("; grant create on {plural} to the agent's service account")
            } else {
                String::new()
            };
            Err(format!(
                "the API server refused the request ({}): {}{remedy}",
                status.code, status.message
            ))
        }
        Err(error) => Err(format!("cannot query the API server: {}", chain(&error))),
    }
}

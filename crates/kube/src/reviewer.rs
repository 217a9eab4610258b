//! Authenticates bearer tokens and authorizes their requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::{Cluster, Stamp, chain};

/// Timeout of a review. A scrape waits for it, so it is less than Prometheus' own 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Number of rights that are reviewed at once for one token.
const AT_ONCE: usize = 4;

/// A right that the owner of a token may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    /// To get a path of this server, as a non-resource URL.
    Path(String),
    /// To post to a path of this server, as a non-resource URL.
    Post(String),
    /// To get the pods of a namespace.
    Pods(String),
}

/// Limit on the reviews that wait for the thread: more than an agent has connections.
const MAX_WAITING: usize = 512;

/// Has the API server review the agent's clients (`TokenReview`, then a
/// `SubjectAccessReview` for each right, as kube-rbac-proxy does).
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
    rights: Vec<Right>,
    answer: oneshot::Sender<Result<Granted, String>>,
}

/// Whether each right is granted; `None` if the token is invalid or has expired.
type Granted = Option<Vec<bool>>;

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

    /// Reviews which of the `rights` the owner of `token` has, in their order; `None` if the
    /// token is invalid or has expired.
    ///
    /// # Errors
    ///
    /// If the API server cannot be queried, or denies the agent the review: the reason.
    pub async fn review(
        &self,
        token: &str,
        rights: Vec<Right>,
    ) -> Result<Option<Vec<bool>>, String> {
        let (answer, answered) = oneshot::channel();
        let question = Question {
            token: token.to_owned(),
            rights,
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
                rights,
                mut answer,
            } = question;
            tokio::select! {
                () = answer.closed() => is_doubted.store(true, Ordering::Relaxed),
                reviewed = review(&client, &token, rights) => {
                    is_doubted.fetch_or(reviewed.is_err(), Ordering::Relaxed);
                    drop(answer.send(reviewed));
                }
            }
        });
    }
}

async fn review(client: &Client, token: &str, rights: Vec<Right>) -> Result<Granted, String> {
    let spec = json!({"token": token});
    let group = "authentication.k8s.io/v1";
    let known: Token = create(client, group, "TokenReview", "tokenreviews", spec).await?;
    if !known.authenticated {
        return Ok(None);
    }
    let user = &known.user;
    let reviews = rights.into_iter().map(|right| has(client, user, right));
    let reviews = stream::iter(reviews).buffered(AT_ONCE);
    reviews.try_collect().await.map(Some)
}

/// Whether a user has a right.
async fn has(client: &Client, user: &User, right: Right) -> Result<bool, String> {
    let mut spec = json!({
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
    });
    let (key, attributes) = match right {
        Right::Path(path) => (
            "nonResourceAttributes",
            json!({"path": path, "verb": "get"}),
        ),
        Right::Post(path) => (
            "nonResourceAttributes",
            json!({"path": path, "verb": "post"}),
        ),
        Right::Pods(namespace) => (
            "resourceAttributes",
            json!({"namespace": namespace, "verb": "get", "resource": "pods"}),
        ),
    };
    if let Some(spec) = spec.as_object_mut() {
        spec.insert(key.to_owned(), attributes);
    }
    let (group, kind) = ("authorization.k8s.io/v1", "SubjectAccessReview");
    let access: Access = create(client, group, kind, "subjectaccessreviews", spec).await?;
    Ok(access.allowed)
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

//! Whose a token is, and whether they may.

use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{Cluster, chain};

/// A scrape waits for it: less than Prometheus' own 10 s.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the API server says of one who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// They may.
    Allowed,
    /// It is known who they are, and they may not.
    Forbidden,
    /// The token is nobody's, or has run out.
    Unknown,
}

/// Asks the API server about those who ask the agent (`TokenReview`, then
/// `SubjectAccessReview` of a non-resource URL, as kube-rbac-proxy does).
#[derive(Debug, Clone)]
pub struct Reviewer {
    cluster: Cluster,
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
    /// Asks `cluster`, at each review anew.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Whether the one with this token may get `path`.
    ///
    /// # Errors
    ///
    /// When the API server cannot be asked, or may not be by the agent: why.
    pub async fn may_get(&self, token: &str, path: &str) -> Result<Review, String> {
        let review = async {
            let client = self.cluster.client().await;
            let client = client.map_err(|error| error.to_string())?;
            let spec = json!({"token": token});
            let group = "authentication.k8s.io/v1";
            let known: Token = create(&client, group, "TokenReview", "tokenreviews", spec).await?;
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
            let access: Access = create(&client, group, kind, "subjectaccessreviews", spec).await?;
            Ok(if access.allowed {
                Review::Allowed
            } else {
                Review::Forbidden
            })
        };
        tokio::time::timeout(TIMEOUT, review)
            .await
            .unwrap_or_else(|_| {
                let seconds = TIMEOUT.as_secs();
                Err(format!("the API server has not answered in {seconds} s"))
            })
    }
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
                "the API server refuses ({}): {}{remedy}",
                status.code, status.message
            ))
        }
        Err(error) => Err(format!("the API server cannot be asked: {}", chain(&error))),
    }
}

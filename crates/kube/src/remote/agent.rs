//! Requests to an agent, and its answers.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use virtlens_model::snapshot::{API_VERSION, Snapshot};

use super::Unanswered;
use super::incidents::{LONGEST_TRACE, TRACE_TIMEOUT};
use crate::cluster::{MAX_ANSWER_BYTES, chain, is_too_long, too_long};

/// An agent with thousands of VMs answers in seconds.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of an answer with several readings, bytes: half of the longest that is read.
const BATCH_BYTES: usize = 32 << 20;

/// Most readings of an answer.
const BATCH_READINGS: usize = 360;

/// A connection to an agent.
#[derive(Clone)]
pub(crate) struct Agent {
    client: Client,
    /// Its place, such as `the agent at https://node-a:9877`.
    place: String,
    /// Option for a token.
    remedy: &'static str,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Agent").field(&self.place).finish()
    }
}

impl Agent {
    /// `remedy` is added to a refusal for want of a token.
    pub(crate) const fn new(client: Client, place: String, remedy: &'static str) -> Self {
        Self {
            client,
            place,
            remedy,
        }
    }

    /// The present reading, or its part about one VM.
    pub(crate) async fn snapshot(&self, vm: Option<&str>) -> Result<Snapshot, Unanswered> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(vm) = vm {
            query.append_pair("vm", vm);
        }
        let body = self.get("/api/v1/snapshot", &query.finish()).await?;
        self.reading(&body)
    }

    /// Passes recorded readings to `each`; see [`super::Remote::history`].
    pub(crate) async fn history(
        &self,
        vm: Option<&str>,
        since: &str,
        until: &str,
        mut each: impl FnMut(Snapshot),
    ) -> Result<Vec<String>, Unanswered> {
        let (mut since, mut limit, mut lost) = (since.to_owned(), 1, Vec::new());
        loop {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query
                .append_pair("since", &since)
                .append_pair("until", until);
            query.append_pair("limit", &limit.to_string());
            if let Some(vm) = vm {
                query.append_pair("vm", vm);
            }
            let body = self.get("/api/v1/history", &query.finish()).await?;
            let (mut next, mut longest) = (None, 1);
            for line in body.split(|byte| *byte == b'\n') {
                if line.is_empty() {
                    continue;
                }
                longest = longest.max(line.len());
                let unknown = |error| self.unanswered(&format!("an unknown line: {error}"));
                match serde_json::from_slice(line).map_err(unknown)? {
                    Line {
                        error: Some(error), ..
                    } => lost.push(error),
                    Line {
                        since: Some(since), ..
                    } => next = Some(since),
                    Line { .. } => each(self.reading(line)?),
                }
            }
            match next {
                Some(next) if next != since => since = next,
                _ => return Ok(lost),
            }
            limit = (BATCH_BYTES / longest).clamp(1, BATCH_READINGS);
        }
    }

    fn reading(&self, json: &[u8]) -> Result<Snapshot, Unanswered> {
        let unknown = |error| self.unanswered(&format!("an unknown reading: {error}"));
        let snapshot: Snapshot = serde_json::from_slice(json).map_err(unknown)?;
        if snapshot.api_version != API_VERSION {
            let version = snapshot.api_version;
            let text = format!("readings of version {version:?}, which this program does not read");
            return Err(self.unanswered(&text));
        }
        Ok(snapshot)
    }

    /// The body of a successful answer.
    pub(super) async fn get(&self, path: &str, query: &str) -> Result<Vec<u8>, Unanswered> {
        self.ask(Method::GET, path, query, ANSWER_TIMEOUT).await
    }

    /// The body of a successful answer within `timeout`.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &str,
        timeout: Duration,
    ) -> Result<Vec<u8>, Unanswered> {
        let target = if query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{query}")
        };
        let place = &self.place;
        let failed = |error: &dyn std::error::Error| {
            Unanswered(format!("cannot query {place}: {}", chain(error)))
        };
        let request = Request::builder().method(method).uri(target);
        let request = request.body(Body::empty());
        let request = request.map_err(|error| failed(&error))?;
        let answered = tokio::time::timeout(timeout, async {
            let (head, body) = self.client.send(request).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(kube::Error::Service)?;
            Ok::<_, kube::Error>((head.status, body.to_bytes().to_vec()))
        });
        match answered.await {
            Ok(Ok((StatusCode::OK, body))) => Ok(body),
            Ok(Ok((status, body))) => Err(self.refused(path, status, &body)),
            Ok(Err(error)) if is_too_long(&error) => Err(self.unanswered(&too_long())),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => {
                let seconds = timeout.as_secs();
                Err(Unanswered(format!(
                    "{place} has not answered in {seconds} s"
                )))
            }
        }
    }

    /// Passes a request on; see [`super::Remote::pass`].
    pub(super) async fn pass(&self, request: Request<()>) -> Result<Response<Body>, Unanswered> {
        let place = &self.place;
        let longest = LONGEST_TRACE + TRACE_TIMEOUT;
        let request = request.map(|()| Body::empty());
        match tokio::time::timeout(longest, self.client.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Unanswered(format!(
                "cannot query {place}: {}",
                chain(&error)
            ))),
            Err(_) => {
                let seconds = longest.as_secs();
                Err(Unanswered(format!(
                    "{place} has not answered in {seconds} s"
                )))
            }
        }
    }

    fn unanswered(&self, what: &str) -> Unanswered {
        Unanswered(format!("{} sent {what}", self.place))
    }

    fn refused(&self, path: &str, status: StatusCode, body: &[u8]) -> Unanswered {
        let error = serde_json::from_slice(body).map(|line: Line| line.error);
        let reason = error.ok().flatten().unwrap_or_else(|| {
            let reason = status.canonical_reason().unwrap_or_default();
            reason.to_lowercase()
        });
        let remedy = match status {
            StatusCode::UNAUTHORIZED => self.remedy,
            StatusCode::NOT_FOUND if path.ends_with("snapshot") => {
                "; the agent may be older than its API"
            }
            _ => "",
        };
        let (place, code) = (&self.place, status.as_u16());
        Unanswered(format!(
            "{place} refused the request ({code}): {reason}{remedy}"
        ))
    }
}

/// The parts of a line, or of an answer, that are no reading.
#[derive(Deserialize)]
struct Line {
    error: Option<String>,
    since: Option<String>,
}

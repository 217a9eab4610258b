//! Asks another agent for readings, over HTTP.

use std::path::PathBuf;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::config::AuthInfo;
use kube::{Client, Config};
use serde::Deserialize;
use virtlens_model::snapshot::{API_VERSION, Snapshot};

use crate::cluster::{chain, connect, is_too_long, too_long};

/// An agent with thousands of VMs answers in seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of an answer with several readings, bytes: half of the longest that is read.
const BATCH_BYTES: usize = 32 << 20;

/// Most readings of an answer.
const BATCH_READINGS: usize = 360;

/// An agent, and the credentials of its reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Its URL, such as `https://node-a:9877`.
    pub url: String,
    /// CA certificates that sign the agent's; `None` = those of the system.
    pub ca_file: Option<PathBuf>,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// Files with a client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The agent did not answer with readings, with the remedy if one is known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(String);

/// A connection to an agent.
pub struct Remote {
    runtime: tokio::runtime::Runtime,
    client: Client,
    url: String,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Remote");
        shown.field("url", &self.url).finish_non_exhaustive()
    }
}

impl Remote {
    /// Prepares to ask an agent. No request is sent.
    ///
    /// # Errors
    ///
    /// If the URL or a file of the credentials is invalid, or if a token would be sent
    /// unencrypted to another host.
    pub fn new(agent: &Endpoint) -> Result<Self, Unanswered> {
        let Endpoint {
            url,
            ca_file,
            token_file,
            identity,
        } = agent;
        let invalid = |error: &dyn std::fmt::Display| {
            Unanswered(format!(
                "invalid URL {url:?}: {error} (expected a form like https://node-a:9877)"
            ))
        };
        let parsed: http::Uri = url.parse().map_err(|error| invalid(&error))?;
        let (Some(_), Some(host)) = (parsed.scheme(), parsed.host()) else {
            return Err(invalid(&"it has no scheme or no host"));
        };
        let is_encrypted = parsed.scheme_str() == Some("https");
        if token_file.is_some() && !is_encrypted && !is_this_host(host) {
            return Err(Unanswered(format!(
                "refused to send the token unencrypted to {url}: expected https://"
            )));
        }
        let certificate = identity.as_ref().map(|(certificate, _)| certificate);
        let key = identity.as_ref().map(|(_, key)| key);
        let files = [ca_file, token_file].into_iter().flatten();
        for file in files.chain(certificate).chain(key) {
            let found = std::fs::metadata(file);
            found.map_err(|error| Unanswered(format!("{}: {error}", file.display())))?;
        }
        let text = |file: &PathBuf| file.to_string_lossy().into_owned();
        let mut config = Config::new(parsed);
        config.root_cert_file.clone_from(ca_file);
        config.auth_info = AuthInfo {
            token_file: token_file.as_ref().map(text),
            client_certificate: certificate.map(text),
            client_key: key.map(text),
            ..AuthInfo::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Unanswered(error.to_string()))?;
        let client = {
            let _inside = runtime.enter();
            connect(config).map_err(|error| Unanswered(error.to_string()))?
        };
        Ok(Self {
            runtime,
            client,
            url: url.clone(),
        })
    }

    /// The present reading, or its part about one VM.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn snapshot(&self, vm: Option<&str>) -> Result<Snapshot, Unanswered> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(vm) = vm {
            query.append_pair("vm", vm);
        }
        let body = self.get("/api/v1/snapshot", &query.finish())?;
        self.reading(&body)
    }

    /// Passes the recorded readings of a time to `each`, in their order: their parts about one
    /// VM, or all. `since` and `until` are as in RFC 3339. Returns the losses.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn history(
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
            let body = self.get("/api/v1/history", &query.finish())?;
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
    fn get(&self, path: &str, query: &str) -> Result<Vec<u8>, Unanswered> {
        let target = if query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{query}")
        };
        let failed = |error: &dyn std::error::Error| {
            let (url, why) = (&self.url, chain(error));
            Unanswered(format!("cannot query the agent at {url}: {why}"))
        };
        let request = Request::get(target).body(kube::client::Body::empty());
        let request = request.map_err(|error| failed(&error))?;
        let answered = self.runtime.block_on(async {
            tokio::time::timeout(ANSWER_TIMEOUT, async {
                let (head, body) = self.client.send(request).await?.into_parts();
                let body = body.collect().await?.to_bytes().to_vec();
                Ok::<_, kube::Error>((head.status, body))
            })
            .await
        });
        match answered {
            Ok(Ok((StatusCode::OK, body))) => Ok(body),
            Ok(Ok((status, body))) => Err(self.refused(path, status, &body)),
            Ok(Err(error)) if is_too_long(&error) => Err(self.unanswered(&too_long())),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                let url = &self.url;
                Err(Unanswered(format!(
                    "the agent at {url} has not answered in {seconds} s"
                )))
            }
        }
    }

    fn unanswered(&self, what: &str) -> Unanswered {
        Unanswered(format!("the agent at {} sent {what}", self.url))
    }

    fn refused(&self, path: &str, status: StatusCode, body: &[u8]) -> Unanswered {
        let error = serde_json::from_slice(body).map(|line: Line| line.error);
        let reason = error.ok().flatten().unwrap_or_else(|| {
            let reason = status.canonical_reason().unwrap_or_default();
            reason.to_lowercase()
        });
        let remedy = match status {
            StatusCode::UNAUTHORIZED => "; name a token with --token-file",
            StatusCode::NOT_FOUND if path.ends_with("snapshot") => {
                "; the agent may be older than its API"
            }
            _ => "",
        };
        let (url, code) = (&self.url, status.as_u16());
        Unanswered(format!(
            "the agent at {url} refused the request ({code}): {reason}{remedy}"
        ))
    }
}

/// The parts of a line, or of an answer, that are no reading.
#[derive(Deserialize)]
struct Line {
    error: Option<String>,
    since: Option<String>,
}

/// Whether a host is this one, so that nobody else sees what is sent to it.
fn is_this_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<std::net::IpAddr, _> = address.parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Remote};

    #[test]
    fn invalid_endpoint_is_refused_without_a_request() {
        let folder = tempfile::tempdir().expect("there is room");
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "a-token").expect("there is room");
        let token_file = Some(token_file);
        for (url, token_file, expected) in [
            ("node-a", None, "expected a form like https://node-a:9877"),
            ("http://", None, "expected a form like"),
            (
                "http://node-a:9877",
                token_file.clone(),
                "refused to send the token unencrypted",
            ),
            (
                "https://node-a",
                Some("/no/token".into()),
                "/no/token: No such file",
            ),
        ] {
            let agent = Endpoint {
                url: url.to_owned(),
                token_file,
                ..Endpoint::default()
            };
            let error = Remote::new(&agent).expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
        for url in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"] {
            let agent = Endpoint {
                url: url.to_owned(),
                token_file: token_file.clone(),
                ..Endpoint::default()
            };
            assert!(
                Remote::new(&agent).is_ok(),
                "{url}: nobody else sees the token"
            );
        }
    }
}

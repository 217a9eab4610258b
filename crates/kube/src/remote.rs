//! Asks another agent for readings, over HTTP.

mod agent;
mod incidents;
pub(crate) mod tunnel;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Request, Response};
use kube::Config;
pub use kube::client::Body;
use kube::config::AuthInfo;
use tokio::runtime::Runtime;
use virtlens_model::snapshot::Snapshot;

pub(crate) use self::agent::Agent;
pub use self::incidents::TraceRequest;
use crate::cluster::connect_unbounded;

/// An agent, and the credentials of its reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Its URL, such as `https://node-a:9877`.
    pub url: String,
    /// CA certificates that sign the agent's; `None` = those of the system.
    pub ca_file: Option<PathBuf>,
    /// File with a bearer token.
    pub token_file: Option<PathBuf>,
    /// A user, and a file with the password.
    pub user: Option<(String, PathBuf)>,
    /// Files with a client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The agent did not answer with readings, with the remedy if one is known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(pub(crate) String);

/// An agent on another node. Each call waits for the answer.
#[derive(Debug, Clone)]
pub struct Remote {
    runtime: Arc<Runtime>,
    agent: Agent,
}

/// A runtime whose tasks run while a call waits.
pub(crate) fn runtime() -> Result<Arc<Runtime>, Unanswered> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map(Arc::new)
        .map_err(|error| Unanswered(error.to_string()))
}

impl Remote {
    /// An agent that is asked on `runtime`.
    pub(crate) const fn on(runtime: Arc<Runtime>, agent: Agent) -> Self {
        Self { runtime, agent }
    }

    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Prepares to ask an agent. No request is sent.
    ///
    /// # Errors
    ///
    /// If the URL or a file of the credentials is invalid, or if a token or a password would be
    /// sent unencrypted to another host.
    pub fn new(agent: &Endpoint) -> Result<Self, Unanswered> {
        let Endpoint {
            url,
            ca_file,
            token_file,
            user,
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
        let secret = match (token_file, user) {
            (Some(_), _) => Some("token"),
            (None, Some(_)) => Some("password"),
            (None, None) => None,
        };
        if let Some(secret) = secret
            && !is_encrypted
            && !is_this_host(host)
        {
            return Err(Unanswered(format!(
                "refused to send the {secret} unencrypted to {url}: expected https://"
            )));
        }
        let password = user.as_ref().map(|(_, file)| password_in(file));
        let password = password.transpose()?;
        let certificate = identity.as_ref().map(|(certificate, _)| certificate);
        let key = identity.as_ref().map(|(_, key)| key);
        let files = ca_file.iter().chain(certificate).chain(key);
        for file in files {
            let found = std::fs::metadata(file);
            found.map_err(|error| Unanswered(format!("{}: {error}", file.display())))?;
        }
        let text = |file: &PathBuf| file.to_string_lossy().into_owned();
        let mut config = Config::new(parsed);
        config.root_cert_file.clone_from(ca_file);
        let login = token_file.as_ref().map(|file| token_in(file));
        config.auth_info = AuthInfo {
            username: user.as_ref().map(|(name, _)| name.clone()),
            password: password.map(Into::into),
            client_certificate: certificate.map(text),
            client_key: key.map(text),
            ..login.transpose()?.unwrap_or_default()
        };
        let runtime = runtime()?;
        let client = {
            let _inside = runtime.enter();
            connect_unbounded(config).map_err(|error| Unanswered(error.to_string()))?
        };
        let remedy = "; name a token with --token-file, or a user with --user and --password-file";
        let agent = Agent::new(client, format!("the agent at {url}"), remedy);
        Ok(Self::on(runtime, agent))
    }

    /// Runs a future, and with it the requests that it sends with [`Self::pass`].
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Passes a request on, with the credentials of this reader instead of those that the request
    /// may have; a reader without credentials leaves the request as it is. The length of the
    /// answer is not bounded.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`]. If the agent refuses the request, this returns its answer.
    pub async fn pass(&self, request: Request<()>) -> Result<Response<Body>, Unanswered> {
        self.agent.pass(request).await
    }

    /// The present reading, or its part about one VM.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub fn snapshot(&self, vm: Option<&str>) -> Result<Snapshot, Unanswered> {
        self.runtime.block_on(self.agent.snapshot(vm))
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
        each: impl FnMut(Snapshot),
    ) -> Result<Vec<String>, Unanswered> {
        let answered = self.agent.history(vm, since, until, each);
        self.runtime.block_on(answered)
    }
}

/// The password: the first line of a file.
/// The login by the token in a file. The client of kube reads the file again from time to time, and
/// sends all of it: a file that a shell wrote ends with a newline, so its token is read once.
pub(crate) fn token_in(file: &Path) -> Result<AuthInfo, Unanswered> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Unanswered(format!("{}: {error}", file.display())))?;
    let token = text.trim();
    Ok(if token == text {
        AuthInfo {
            token_file: Some(file.to_string_lossy().into_owned()),
            ..AuthInfo::default()
        }
    } else {
        AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        }
    })
}

fn password_in(file: &Path) -> Result<String, Unanswered> {
    let invalid = |error: &dyn std::fmt::Display| {
        let file = file.display();
        Unanswered(format!("{file}: {error}"))
    };
    let text = std::fs::read_to_string(file).map_err(|error| invalid(&error))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(invalid(&"expected a password in its first line"));
    }
    Ok(password.to_owned())
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
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "\n").expect("there is room");
        for (url, file, expected) in [
            (
                "http://node-a",
                token_file.clone(),
                "refused to send the password",
            ),
            (
                "https://node-a",
                Some(empty),
                "expected a password in its first line",
            ),
            (
                "https://node-a",
                Some("/no/file".into()),
                "/no/file: No such file",
            ),
        ] {
            let agent = Endpoint {
                url: url.to_owned(),
                user: file.map(|file| ("admin".to_owned(), file)),
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

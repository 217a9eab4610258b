//! Authentication and authorization of requests. This is the only place that decides on
//! them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;
use virtlens_kube::{Reviewer, Right};

use super::namespaces::Namespaces;
use super::one_time::OneTime;
use super::passwords::{Passwords, Verdict};
use super::tokens::{NoAnswer, Review, Tokens};
use super::web_config::WebConfig;

/// Paths of the kubelet's probes. They require no password, since the kubelet has none,
/// and they show only the agent's health.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Paths of the files of the page for browsers. They are open, too: they are the same on every
/// node, and the page asks for the credentials that the API requires.
pub(super) const PAGE: [&str; 3] = ["/", "/ui/app.js", "/ui/app.css"];

/// The path that exchanges the code of `virtlens ui` for a token.
pub(super) const SESSION: &str = "/ui/session";

/// The API's paths. A user who may get [`READABLE`] sees the whole node there; an owner of pods
/// sees those pods.
pub(super) const API: &str = "/api/";

/// The path whose right decides on the API, which shows the same. The right to an API path
/// itself decides on nothing: by default every authenticated user may get /api/*
/// (`system:discovery`, `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` of
/// Kubernetes).
const READABLE: &str = "/metrics";

const OPEN_TRACE: &str = "forbidden: traces need authentication; start the agent with --web-auth \
                          kubernetes, or with users in --web-config and --web-trace-users";
const TENANT_TRACE: &str = "forbidden: traces name threads of others and are only for readers of \
                            the whole node";
const TOKEN_TRACE: &str = "forbidden: the token's user lacks the verb post on this nonResourceURL";
const RECORDING_TRACE: &str = "forbidden: a recording cannot be traced";
const USER_TRACE: &str = "forbidden: the user is not in --web-trace-users";

/// The part of the node that a client may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The whole node.
    Whole,
    /// The pods of the namespaces in which the owner of this token may get pods.
    OwnPods(String),
}

/// Reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Unknown user, or wrong password or token.
    Unknown,
    /// Authenticated, but not authorized.
    Forbidden,
    /// Authenticated or not, the client may not trace VMs, for this reason.
    NoTrace(&'static str),
    /// Not decided: too many checks are waiting.
    Busy,
    /// Not decided: the API server is not available.
    Away,
}

/// Authentication schemes that clients can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schemes {
    /// User and password.
    pub(super) basic: bool,
    /// Bearer token of the cluster.
    pub(super) bearer: bool,
}

/// Authorization of requests, besides the users of the web configuration.
#[derive(Default)]
pub struct Authorizers {
    /// The API server, which reviews bearer tokens.
    pub reviewer: Option<Reviewer>,
    /// Users of the web configuration who may trace VMs.
    pub trace_users: BTreeSet<String>,
    /// The only credentials of `virtlens ui`.
    pub one_time: Option<Arc<OneTime>>,
}

/// Decides on each request.
pub(super) struct Auth {
    passwords: Passwords,
    tokens: Option<Tokens>,
    /// Users who may trace VMs.
    trace_users: BTreeSet<String>,
    one_time: Option<Arc<OneTime>>,
}

impl Auth {
    pub(super) fn new(authorizers: Authorizers) -> Self {
        Self {
            passwords: Passwords::new(),
            tokens: authorizers.reviewer.map(Tokens::new),
            trace_users: authorizers.trace_users,
            one_time: authorizers.one_time,
        }
    }

    /// The schemes that this configuration accepts.
    pub(super) fn schemes(&self, config: &WebConfig) -> Schemes {
        Schemes {
            basic: !config.users.is_empty(),
            bearer: self.tokens.is_some() || self.one_time.is_some(),
        }
    }

    /// Returns what the client may see.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub(super) async fn admit(
        &self,
        config: &WebConfig,
        peer: IpAddr,
        head: &Parts,
    ) -> Result<Access, Refusal> {
        let path = head.uri.path();
        let is_open_path = OPEN.contains(&path) || path == SESSION || PAGE.contains(&path);
        if self.is_open(config) || is_open_path {
            return Ok(Access::Whole);
        }
        let header = head.headers.get(AUTHORIZATION).ok_or(Refusal::Unknown)?;
        if let Some(one_time) = &self.one_time {
            let token = bearer(header).filter(|token| one_time.admits(token));
            return token.map(|_| Access::Whole).ok_or(Refusal::Unknown);
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(header)) {
            let is_api = path.starts_with(API);
            let path = if is_api { READABLE } else { path };
            let right = Right::Path(path.to_owned());
            return match tokens.review(peer, token, right).await? {
                Review::Allowed => Ok(Access::Whole),
                Review::Forbidden if is_api => Ok(Access::OwnPods(token.to_owned())),
                Review::Forbidden => Err(Refusal::Forbidden),
                Review::Unknown => Err(Refusal::Unknown),
            };
        }
        let (user, password) = credentials(header).ok_or(Refusal::Unknown)?;
        let verdict = self.passwords.check(&config.users, peer, &user, &password);
        match verdict.await {
            Verdict::Right => Ok(Access::Whole),
            Verdict::Wrong => Err(Refusal::Unknown),
            Verdict::Busy => Err(Refusal::Busy),
        }
    }

    /// Decides whether the client may trace VMs. A trace shows threads of the whole node and
    /// costs time, so it needs a right besides that to see the whole node.
    ///
    /// # Errors
    ///
    /// If the request is refused.
    pub(super) async fn admit_trace(
        &self,
        config: &WebConfig,
        peer: IpAddr,
        head: &Parts,
    ) -> Result<(), Refusal> {
        if self.is_open(config) {
            return Err(Refusal::NoTrace(OPEN_TRACE));
        }
        if self.admit(config, peer, head).await? != Access::Whole {
            return Err(Refusal::NoTrace(TENANT_TRACE));
        }
        if let Some(one_time) = &self.one_time {
            let can_trace = one_time.can_trace();
            return can_trace
                .then_some(())
                .ok_or(Refusal::NoTrace(RECORDING_TRACE));
        }
        let header = head.headers.get(AUTHORIZATION).ok_or(Refusal::Unknown)?;
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(header)) {
            let right = Right::Post(head.uri.path().to_owned());
            return match tokens.review(peer, token, right).await? {
                Review::Allowed => Ok(()),
                Review::Forbidden => Err(Refusal::NoTrace(TOKEN_TRACE)),
                Review::Unknown => Err(Refusal::Unknown),
            };
        }
        // The password is right: the client is admitted.
        let (user, _) = credentials(header).ok_or(Refusal::Unknown)?;
        if self.trace_users.contains(&user) {
            Ok(())
        } else {
            Err(Refusal::NoTrace(USER_TRACE))
        }
    }

    /// Whether requests need no credentials.
    fn is_open(&self, config: &WebConfig) -> bool {
        self.tokens.is_none() && self.one_time.is_none() && config.users.is_empty()
    }

    /// Whether this is `virtlens ui`.
    pub(super) fn has_sessions(&self) -> bool {
        self.one_time.is_some()
    }

    /// Exchanges the code of `virtlens ui` for its token.
    ///
    /// # Errors
    ///
    /// If the code is wrong or used.
    pub(super) fn session(&self, head: &Parts) -> Result<&str, Refusal> {
        let one_time = self.one_time.as_ref().ok_or(Refusal::Unknown)?;
        let code = head.headers.get(AUTHORIZATION).and_then(bearer);
        let token = code.and_then(|code| one_time.redeem(code));
        token.ok_or(Refusal::Unknown)
    }

    /// Returns the namespaces among `wanted` in which the owner of `token` may get pods.
    ///
    /// # Errors
    ///
    /// If the token is not valid any more, or not all of them could be reviewed.
    pub(super) async fn namespaces(
        &self,
        peer: IpAddr,
        token: &str,
        wanted: &Namespaces,
    ) -> Result<Namespaces, Refusal> {
        let tokens = self.tokens.as_ref().ok_or(Refusal::Unknown)?;
        let visible = tokens.namespaces(peer, token, wanted).await?;
        visible.ok_or(Refusal::Unknown)
    }
}

impl From<NoAnswer> for Refusal {
    fn from(reason: NoAnswer) -> Self {
        match reason {
            NoAnswer::Busy => Self::Busy,
            NoAnswer::Away => Self::Away,
        }
    }
}

/// Returns the token in an `Authorization` header (RFC 6750); `None` if it has none.
pub fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Returns user and password in an `Authorization` header (RFC 7617); `None` if it has
/// none, or the user is not valid UTF-8.
pub fn credentials(header: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, text) = header.to_str().ok()?.split_once(' ')?;
    let text = scheme
        .eq_ignore_ascii_case("basic")
        .then_some(text.trim())?;
    let mut user = STANDARD.decode(text).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((String::from_utf8(user).ok()?, password))
}

#[cfg(test)]
mod tests {
    use super::{HeaderValue, bearer, credentials};

    #[test]
    fn bearer_token_is_parsed_in_every_valid_form() {
        for (header, read) in [
            ("Bearer abc.def", Some("abc.def")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic abc", None),
        ] {
            assert_eq!(
                bearer(&HeaderValue::from_static(header)),
                read,
                "{header:?}"
            );
        }
    }

    #[test]
    fn basic_credentials_are_parsed_in_every_valid_form() {
        for (header, read) in [
            ("Basic cHJvbTpzZWNyZXQ=", Some(("prom", "secret"))),
            ("basic  cHJvbTpzZWNyZXQ= ", Some(("prom", "secret"))),
            ("Basic cHJvbTphOmI=", Some(("prom", "a:b"))),
            ("Basic Og==", Some(("", ""))),
            ("Basic cHJvbQ==", None),
            ("Basic cHJvbTpzZWNyZXQ", None),
            ("Basic", None),
            ("Bearer cHJvbTpzZWNyZXQ=", None),
            ("", None),
        ] {
            let expected = read.map(|(user, password)| (user.to_owned(), password.into()));
            assert_eq!(
                credentials(&HeaderValue::from_static(header)),
                expected,
                "{header:?}"
            );
        }
    }
}

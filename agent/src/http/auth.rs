//! Whether a request may pass: the one place that decides it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;
use virtlens_kube::{Review, Reviewer};

use super::passwords::{Passwords, Verdict};
use super::tokens::{NoAnswer, Tokens};
use super::web_config::WebConfig;

/// What kubelet asks, which has no password. It tells only whether the agent
/// is well.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Why a request may not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody that is known, or not with this password or token.
    Unknown,
    /// It is known who it is, and they may not.
    Forbidden,
    /// It could not be found out: others wait for theirs already.
    Busy,
    /// It could not be found out: the API server cannot be asked.
    Away,
}

/// By what clients can prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schemes {
    /// User and password.
    pub(super) basic: bool,
    /// A token of the cluster's.
    pub(super) bearer: bool,
}

/// Decides of each request.
pub(super) struct Auth {
    passwords: Passwords,
    tokens: Option<Tokens>,
}

impl Auth {
    pub(super) fn new(reviewer: Option<Reviewer>) -> Self {
        Self {
            passwords: Passwords::new(),
            tokens: reviewer.map(Tokens::new),
        }
    }

    /// What may be tried.
    pub(super) fn schemes(&self, config: &WebConfig) -> Schemes {
        Schemes {
            basic: !config.users.is_empty(),
            bearer: self.tokens.is_some(),
        }
    }

    /// # Errors
    ///
    /// When the request may not pass.
    pub(super) async fn admit(
        &self,
        config: &WebConfig,
        peer: IpAddr,
        head: &Parts,
    ) -> Result<(), Refusal> {
        let path = head.uri.path();
        let is_open = self.tokens.is_none() && config.users.is_empty();
        if is_open || OPEN.contains(&path) {
            return Ok(());
        }
        let header = head.headers.get(AUTHORIZATION).ok_or(Refusal::Unknown)?;
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(header)) {
            return match tokens.review(peer, token, path).await {
                Ok(Review::Allowed) => Ok(()),
                Ok(Review::Forbidden) => Err(Refusal::Forbidden),
                Ok(Review::Unknown) => Err(Refusal::Unknown),
                Err(NoAnswer::Busy) => Err(Refusal::Busy),
                Err(NoAnswer::Away) => Err(Refusal::Away),
            };
        }
        let (user, password) = credentials(header).ok_or(Refusal::Unknown)?;
        let verdict = self.passwords.check(&config.users, peer, &user, &password);
        match verdict.await {
            Verdict::Right => Ok(()),
            Verdict::Wrong => Err(Refusal::Unknown),
            Verdict::Busy => Err(Refusal::Busy),
        }
    }
}

/// The token in an `Authorization` header (RFC 6750); `None` where it has none.
pub fn bearer(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// User and password in an `Authorization` header (RFC 7617); `None` where it has
/// none, or a user that is no UTF-8.
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
    fn tokens_are_read_as_clients_send_them() {
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
    fn credentials_are_read_as_clients_send_them() {
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

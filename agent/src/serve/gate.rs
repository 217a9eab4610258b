//! Whether a request may pass: the one place that decides it.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;

use super::passwords::{Passwords, Verdict};
use super::web_config::WebConfig;

/// What kubelet asks, which has no password. It tells only whether the agent
/// is well.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Why a request may not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody that is known, or not with this password.
    Unknown,
    /// It could not be found out: others wait for theirs already.
    Busy,
}

/// Decides of each request.
pub(super) struct Gate {
    passwords: Passwords,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            passwords: Passwords::new(),
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
        if config.users.is_empty() || OPEN.contains(&head.uri.path()) {
            return Ok(());
        }
        let header = head.headers.get(AUTHORIZATION).ok_or(Refusal::Unknown)?;
        let (user, password) = credentials(header).ok_or(Refusal::Unknown)?;
        let verdict = self.passwords.check(&config.users, peer, &user, &password);
        match verdict.await {
            Verdict::Right => Ok(()),
            Verdict::Wrong => Err(Refusal::Unknown),
            Verdict::Busy => Err(Refusal::Busy),
        }
    }
}

/// User and password of basic authentication (RFC 7617).
fn credentials(header: &HeaderValue) -> Option<(String, Vec<u8>)> {
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
    use super::{HeaderValue, credentials};

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

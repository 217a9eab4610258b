//! Credentials of `virtlens ui`: a code that is valid once, and a token that a client gets for it.
//!
//! Other users of the host can read the arguments of the program that opens the browser, and so
//! the code. The first client uses it up, so a second one is refused.

use std::io;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Length of the secrets, bytes.
const LENGTH: usize = 32;

/// The code and the token of one server.
pub struct OneTime {
    code: Mutex<Option<String>>,
    token: String,
    can_trace: bool,
}

impl OneTime {
    /// New secrets. With `can_trace` the client may trace VMs.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn new(can_trace: bool) -> io::Result<Self> {
        Ok(Self {
            code: Mutex::new(Some(secret()?)),
            token: secret()?,
            can_trace,
        })
    }

    /// The code; `None` once it is used.
    pub fn code(&self) -> Option<String> {
        let code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.clone()
    }

    /// The token, for the first client that has the code.
    pub(super) fn redeem(&self, given: &str) -> Option<&str> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = code.as_deref().is_some_and(|code| is_equal(code, given));
        if is_right {
            *code = None;
        }
        is_right.then_some(&self.token)
    }

    /// Whether this is the token.
    pub(super) fn admits(&self, given: &str) -> bool {
        is_equal(&self.token, given)
    }

    pub(super) fn can_trace(&self) -> bool {
        self.can_trace
    }
}

fn secret() -> io::Result<String> {
    let mut bytes = [0; LENGTH];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Compares in a time that depends on the lengths only.
fn is_equal(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let differences = pairs.fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::OneTime;

    #[test]
    fn code_is_valid_once_and_is_not_the_token() {
        let one_time = OneTime::new(true).expect("random numbers");
        let code = one_time.code().expect("it is new");
        assert!(code.len() >= 43, "{code}");
        assert!(!one_time.admits(&code));
        assert_eq!(one_time.redeem("another"), None);
        let token = one_time.redeem(&code).expect("it is right").to_owned();
        assert_eq!(one_time.redeem(&code), None);
        assert_eq!(one_time.code(), None);
        assert!(one_time.admits(&token));
        assert!(!one_time.admits(&token[1..]));
        assert!(!one_time.admits(""));
    }

    #[test]
    fn each_server_has_other_secrets() {
        let two = [OneTime::new(true), OneTime::new(true)].map(|one| one.expect("random numbers"));
        assert_ne!(two[0].code(), two[1].code());
        assert_ne!(two[0].token, two[1].token);
    }
}

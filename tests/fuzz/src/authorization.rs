//! The `Authorization` header of a client that is not authenticated yet.

use hyper::header::HeaderValue;
use virtlens::http::{bearer, credentials};

/// `data` is the header's value.
pub fn authorization(data: &[u8]) {
    let Ok(header) = HeaderValue::from_bytes(data) else {
        return;
    };
    let token = bearer(&header);
    if let Some(token) = token {
        assert!(!token.is_empty() && token.trim() == token);
    }
    if let Some((user, _)) = credentials(&header) {
        assert!(!user.contains(':'), "the first colon ends the user");
        assert_eq!(token, None, "a header is of one scheme");
    }
}

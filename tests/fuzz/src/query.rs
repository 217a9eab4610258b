//! The parameters of a request to the API, of a client that is not trusted.

use virtlens::http::check_query;

/// `data` is the query string of a URL.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match check_query(text) {
        Ok(()) => {
            let known = [
                "vm", "interval", "since", "until", "limit", "for", "maxSize",
            ];
            let plain = !text.contains('%');
            let parts = text.split('&').filter(|part| !part.is_empty());
            let mut keys = parts.filter_map(|part| part.split('=').next());
            assert!(!plain || keys.all(|key| known.contains(&key)));
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
}

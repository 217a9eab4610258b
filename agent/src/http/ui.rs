//! The page for browsers: generated files, which hold no data of the node. The page gets its data
//! from the API. `scripts/build-ui` makes the files from the sources in `ui`.

use std::sync::LazyLock;

use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};

use crate::collect::readings::gzip;
use crate::http::accept::accepts_gzip;
use crate::http::answer::{Answer, full, set};

/// The page runs its own script only, talks to its own server only, and no other site can
/// frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";

/// A generated file.
#[derive(Debug)]
pub(super) struct File {
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    compressed: LazyLock<Bytes>,
}

static FILES: [File; 3] = [
    File {
        path: "/",
        content_type: "text/html; charset=utf-8",
        content: PAGE,
        compressed: LazyLock::new(|| gzip(PAGE).into()),
    },
    File {
        path: "/ui/app.js",
        content_type: "text/javascript; charset=utf-8",
        content: SCRIPT,
        compressed: LazyLock::new(|| gzip(SCRIPT).into()),
    },
    File {
        path: "/ui/app.css",
        content_type: "text/css; charset=utf-8",
        content: STYLE,
        compressed: LazyLock::new(|| gzip(STYLE).into()),
    },
];

const PAGE: &[u8] = include_bytes!("ui/index.html");
const SCRIPT: &[u8] = include_bytes!("ui/app.js");
const STYLE: &[u8] = include_bytes!("ui/app.css");

/// The file that is served at a path.
pub(super) fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

impl File {
    /// Answers a request for it.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Answer {
        let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip);
        let content = if gzip {
            Bytes::clone(&self.compressed)
        } else {
            Bytes::from_static(self.content)
        };
        let mut response = full(content);
        for (name, value) in [
            (CONTENT_TYPE, self.content_type),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // The next version of the agent has other files at the same paths.
            (CACHE_CONTROL, "no-cache"),
            (VARY, "Accept-Encoding"),
        ] {
            set(&mut response, name, HeaderValue::from_static(value));
        }
        if gzip {
            let gzip = HeaderValue::from_static("gzip");
            set(&mut response, CONTENT_ENCODING, gzip);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::FILES;
    use crate::http::auth::PAGE;

    #[test]
    fn every_file_of_page_needs_no_credentials() {
        assert_eq!(FILES.each_ref().map(|file| file.path), PAGE);
    }
}

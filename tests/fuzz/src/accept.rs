//! Headers of the formats that a client accepts: `Accept` and `Accept-Encoding`.

use hyper::header::HeaderValue;
use virtlens::http::accepts_gzip;
use virtlens_export::Format;

/// `data` is the value of either header.
pub fn accept(data: &[u8]) {
    let Ok(header) = HeaderValue::from_bytes(data) else {
        return;
    };
    let text = header.to_str().ok();
    let says = |word: &str| text.is_some_and(|text| text.contains(word));
    if Format::negotiate(text) == Format::OpenMetrics {
        assert!(says("application/openmetrics-text"), "it was not asked for");
    }
    if accepts_gzip(&header) {
        assert!(says("gzip") || says("*"), "it was not asked for");
    }
}

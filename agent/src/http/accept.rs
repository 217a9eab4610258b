//! Encodings that clients accept.

use hyper::header::HeaderValue;

/// Whether an `Accept-Encoding` header accepts gzip: by name or by `*`, and not with
/// quality 0.
pub fn accepts_gzip(header: &HeaderValue) -> bool {
    let codings = header.to_str().unwrap_or_default().split(',');
    codings
        .map(|coding| coding.split_once(';').unwrap_or((coding, "")))
        .find(|(name, _)| ["gzip", "*"].contains(&name.trim()))
        .is_some_and(|(_, parameters)| {
            let quality = parameters.trim().strip_prefix("q=");
            quality.is_none_or(|quality| quality.parse().is_ok_and(|quality: f32| quality > 0.0))
        })
}

#[cfg(test)]
mod tests {
    use super::{HeaderValue, accepts_gzip};

    #[test]
    fn gzip_is_sent_only_if_accepted() {
        for (header, taken) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("identity", false),
            ("", false),
            ("xgzip", false),
        ] {
            assert_eq!(
                accepts_gzip(&HeaderValue::from_static(header)),
                taken,
                "{header:?}"
            );
        }
    }
}

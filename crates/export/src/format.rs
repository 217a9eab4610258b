//! Content negotiation: selects the text format for a scraper.

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// The older Prometheus text format, version 0.0.4. It is the default for clients
    /// without negotiation, such as `curl` and browsers.
    Text,
}

impl Format {
    /// Returns the format that an `Accept` header prefers, and the older one if the
    /// header is missing, names neither, or rates both equally.
    ///
    /// `OpenMetrics` matches only in the supported versions, 1.0.0 and 0.0.1; the output
    /// is the same in both.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let mut open_metrics: f32 = 0.0;
        let mut text: f32 = 0.0;
        for range in accept.unwrap_or_default().split(',') {
            let (media, quality) = media_range(range);
            match media {
                "application/openmetrics-text" => open_metrics = open_metrics.max(quality),
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        if open_metrics > text {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns a media range and its quality: 0 for an unsupported version, 1 if the range
/// has no quality.
fn media_range(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let mut quality = 1.0;
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "q" => quality *= value.trim().parse::<f32>().unwrap_or(0.0),
            "version" if !["1.0.0", "0.0.1", "0.0.4"].contains(&value.trim()) => quality = 0.0,
            _ => {}
        }
    }
    (media, quality)
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn accept_header_selects_format() {
        let prometheus_2_42 = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,\
            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/html, */*;q=0.8"), Format::Text),
            (Some("text/plain;version=0.0.4"), Format::Text),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (
                Some("application/openmetrics-text; version=1.0.0; q=0.2"),
                Format::OpenMetrics,
            ),
            (
                Some("application/openmetrics-text; version=9.0.0"),
                Format::Text,
            ),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (Some("application/openmetrics-text;q=x"), Format::Text),
            (Some(prometheus_2_42), Format::OpenMetrics),
            (Some(prometheus_3), Format::OpenMetrics),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept:?}");
        }
    }
}

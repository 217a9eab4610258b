//! The log: on stderr, one event per line.

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

/// Sends the events of this process to stderr. Must be called only once.
pub fn init(format: LogFormat, level: Level) {
    let layer = match format {
        LogFormat::Logfmt => tracing_logfmt::builder()
            .with_target(false)
            .layer()
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_target(false)
            .with_writer(std::io::stderr)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter(level)))
        .init();
}

/// Filter of events at `level`. The Kubernetes client library is silent: it would log
/// every answer that it cannot parse, with the environment of every pod, and it returns
/// its errors anyway.
fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(LevelFilter::from_level(level))
        .with_target("kube", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::filter;

    #[test]
    fn kubernetes_responses_are_not_logged() {
        let filter = filter(Level::DEBUG);
        assert!(!filter.would_enable("kube_client::client", &Level::ERROR));
        assert!(filter.would_enable("virtlens_kube::store", &Level::DEBUG));
        assert!(!filter.would_enable("virtlens_kube::store", &Level::TRACE));
    }
}

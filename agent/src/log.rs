//! The log: stderr, one event a line.

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

/// Sends the events of this process to stderr from now on. Must be called
/// once only.
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
        .with(layer.with_filter(LevelFilter::from_level(level)))
        .init();
}

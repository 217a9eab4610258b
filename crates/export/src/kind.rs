//! Metric types.

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, except for a reset when its VM restarts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Always 1; the labels carry the information.
    Info,
    /// Distribution of durations: series `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl Kind {
    /// The type's name in `OpenMetrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
            Self::Histogram => "histogram",
        }
    }
}

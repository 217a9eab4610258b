//! How the values of a metric family behave.

/// How the values of a family behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, until its VM begins anew.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Always 1; what it says stands in its labels.
    Info,
    /// How often something took how long: series of `_bucket`, `_sum` and
    /// `_count`.
    Histogram,
}

impl Kind {
    /// Its name in `OpenMetrics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
            Self::Histogram => "histogram",
        }
    }
}

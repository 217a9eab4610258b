//! Profiles of metrics.

/// A set of metric families. Each profile contains the one before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Enough for all alerts of severity warning: at most 12 series for a VM.
    Minimal,
    /// Enough for all alerts and the dashboards' overviews: at most 40 series for a VM, and 3
    /// more for each vCPU.
    #[default]
    Default,
    /// Everything, except families whose number of series grows with the host.
    Full,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Minimal, Self::Default, Self::Full];

    /// The name, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

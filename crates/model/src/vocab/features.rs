//! What a VM has to give memory back.

use serde::Serialize;

/// Something that a VM has or has not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// Whether it is there; `None` where that is not known.
    pub enabled: Option<bool>,
    /// What tells so, or why it is not known.
    pub reason: &'static str,
}

impl Feature {
    /// Not known, with the reason.
    pub const fn unknown(reason: &'static str) -> Self {
        Self {
            enabled: None,
            reason,
        }
    }

    /// Known, with what says so.
    pub const fn known(enabled: bool, reason: &'static str) -> Self {
        Self {
            enabled: Some(enabled),
            reason,
        }
    }

    /// Whether it is known not to be there.
    pub fn is_absent(&self) -> bool {
        self.enabled == Some(false)
    }
}

/// What a VM has to give memory back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Features {
    /// A balloon device.
    pub balloon: Feature,
    /// Its guest reports free pages.
    pub free_page_reporting: Feature,
}

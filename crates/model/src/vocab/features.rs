//! Features by which a VM releases memory.

use serde::{Deserialize, Serialize};

use crate::vocab::name::{self, Name};

/// A feature that a VM has or lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Feature {
    /// Whether the VM has the feature; `None` if unknown.
    pub enabled: Option<bool>,
    /// The evidence, or the reason why the state is unknown.
    #[serde(deserialize_with = "name::known")]
    pub reason: Name,
}

impl Feature {
    /// An unknown state, with the reason.
    pub const fn unknown(reason: &'static str) -> Self {
        Self {
            enabled: None,
            reason,
        }
    }

    /// A known state, with the evidence.
    pub const fn known(enabled: bool, reason: &'static str) -> Self {
        Self {
            enabled: Some(enabled),
            reason,
        }
    }

    /// Whether the feature is known to be absent.
    pub fn is_absent(&self) -> bool {
        self.enabled == Some(false)
    }
}

/// Features by which a VM releases memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Features {
    /// A balloon device.
    pub balloon: Feature,
    /// The guest reports free pages (free page reporting).
    pub free_page_reporting: Feature,
}

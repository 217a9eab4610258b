//! What is wrong with a VM.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;

use crate::snapshot::check::{Check, Severity};

/// One check that is raised for a VM.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which check.
    pub check: Check,
    /// How much it matters.
    pub severity: Severity,
    /// What was measured, as a sentence.
    pub evidence: String,
    /// What to do about it, by what is seen of the VM's runtime.
    pub remedy: Cow<'static, str>,
    /// How far beyond its threshold it is: 1 is just there.
    pub excess: f64,
}

impl Finding {
    /// A check that is raised, with its own severity and remedy.
    pub fn new(check: Check, evidence: String, excess: f64) -> Self {
        let about = check.about();
        Self {
            check,
            severity: about.severity,
            evidence,
            remedy: about.remedy.into(),
            excess,
        }
    }

    /// With another remedy than its check's.
    #[must_use]
    pub fn with(self, remedy: Cow<'static, str>) -> Self {
        Self { remedy, ..self }
    }

    /// Warnings first, and of one severity what is furthest beyond its threshold.
    pub fn by_rank(&self, other: &Self) -> Ordering {
        let severity = self.severity.cmp(&other.severity);
        severity.then_with(|| other.excess.total_cmp(&self.excess))
    }
}

/// The findings of a VM, as they are shared between readings.
pub type Findings = Arc<[Finding]>;

impl Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

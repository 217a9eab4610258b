//! Findings about a VM.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::snapshot::check::{Check, Severity};

/// One check that is raised for a VM.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// Severity of the finding.
    pub severity: Severity,
    /// The measured values, as a sentence.
    pub evidence: String,
    /// The remedy for the VM's runtime.
    pub remedy: Cow<'static, str>,
    /// Ratio of the value to its threshold: 1 is exactly at the threshold.
    pub excess: f64,
}

impl Finding {
    /// A finding with the severity and the remedy of its check.
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

    /// Replaces the remedy.
    #[must_use]
    pub fn with(self, remedy: Cow<'static, str>) -> Self {
        Self { remedy, ..self }
    }

    /// Order of display: warnings first; within a severity the highest excess first.
    pub fn by_rank(&self, other: &Self) -> Ordering {
        let severity = self.severity.cmp(&other.severity);
        severity.then_with(|| other.excess.total_cmp(&self.excess))
    }
}

/// The findings of a VM, shared between readings.
pub type Findings = Arc<[Finding]>;

impl Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

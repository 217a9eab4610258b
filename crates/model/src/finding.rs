//! What is wrong with a VM, over a time: which check is raised, with what was
//! measured.
//!
//! ```text
//! two readings ─► Interval ─► quota · threads · place · memory ─► findings, ranked
//!                                  ▲ Bounds (thresholds)
//! ```
//!
//! [`Check`] says of each what its rule is and what to do. A check is raised once
//! for a VM: what it is raised for stands in the evidence.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use self::remedy::Setup;
use crate::interval::Interval;

mod bounds;
mod check;
mod memory;
mod place;
mod quota;
mod remedy;
mod threads;
mod watch;

pub use bounds::{Bound, Bounds, Unit};
pub use check::{About, Check, Severity};
pub use watch::Watch;

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
    fn with(self, remedy: Cow<'static, str>) -> Self {
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

/// Judges a VM over a time; what is found comes [by rank](Finding::by_rank). `cgroup`
/// is where the host's cpu controller is ([`Node::cgroup`](crate::snapshot::Node)).
pub fn judge(over: &Interval, bounds: &Bounds, cgroup: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let setup = Setup::of(over.now, cgroup);
    found.extend(quota::judge(over, bounds, &setup));
    // At its limit a VM needs a higher one: more vCPUs would only share it.
    let is_capped = found.iter().any(|one| one.check == Check::QuotaCapped);
    let threads = threads::judge(over, bounds, &setup);
    found.extend(threads.filter(|one| !is_capped || one.check != Check::VcpusSaturated));
    found.extend(place::judge(over));
    found.extend(memory::judge(over, bounds));
    found.sort_by(Finding::by_rank);
    found
}

/// A share, 0 to 1, as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A time as people say it.
fn time(ns: u64) -> String {
    let secs = Duration::from_nanos(ns).as_secs_f64();
    if secs < 1.0 {
        format!("{:.0} ms", secs * 1e3)
    } else {
        format!("{secs:.1} s")
    }
}

/// Bytes as people say them.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 {
        format!("{mib:.0} MiB")
    } else {
        format!("{:.1} GiB", mib / 1024.0)
    }
}

/// "a, b and c".
fn listed<T: Display>(parts: impl IntoIterator<Item = T>) -> String {
    let parts: Vec<String> = parts.into_iter().map(|part| part.to_string()).collect();
    match parts.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

impl Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;

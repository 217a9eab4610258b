//! Findings about the VM's placement, as last judged.

use crate::judge::interval::Interval;
use crate::snapshot::{Check, Finding, Misplaced};
use crate::vocab::MismatchKind;

/// Maximum number of findings per kind; `virtlens topology` shows all.
const SHOWN_MAX: usize = 3;

pub(super) fn judge(over: &Interval) -> impl Iterator<Item = Finding> {
    let mismatches = over
        .now
        .topology
        .as_deref()
        .map_or_else(Default::default, |topology| topology.mismatches.as_slice());
    MismatchKind::ALL.into_iter().filter_map(|kind| {
        let of_kind: Vec<&Misplaced> = mismatches
            .iter()
            .filter(|one| one.mismatch.kind == kind)
            .collect();
        let first = of_kind.first()?;
        let mut evidence: Vec<String> = of_kind
            .iter()
            .take(SHOWN_MAX)
            .map(|one| one.mismatch.evidence.clone())
            .collect();
        if of_kind.len() > SHOWN_MAX {
            evidence.push(format!("and {} more", of_kind.len() - SHOWN_MAX));
        }
        Some(Finding {
            remedy: first.mismatch.remedy.clone().into(),
            ..Finding::new(Check::Place(kind), evidence.join("; "), 1.0)
        })
    })
}

//! A reading in short: what a time line shows of it.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use virtlens_model::snapshot::{Check, Severity, Snapshot};

/// A reading in short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// Time of the reading, ns since 1970.
    pub unix_ns: u64,
    /// Number of its findings of severity warning.
    pub warnings: u32,
    /// Number of those that the reading before did not have.
    pub begun: u32,
}

/// The warnings of the reading before.
#[derive(Debug, Default)]
pub(crate) struct Warnings(FxHashSet<Warning>);

/// A VM, by pid and name, and a check.
type Warning = (u32, Arc<str>, Check);

impl Warnings {
    /// The next reading in short, and its warnings, which replace these once it is recorded.
    pub(crate) fn mark(&self, snapshot: &Snapshot, unix_ns: u64) -> (Mark, Self) {
        let found = snapshot.vms.iter().flat_map(|vm| {
            let found = vm.findings.iter().flat_map(|found| found.iter());
            found.map(move |one| (vm, one))
        });
        let warnings = found.filter(|(_, one)| one.severity == Severity::Warning);
        let now: FxHashSet<Warning> = warnings
            .map(|(vm, one)| (vm.pid, Arc::clone(&vm.vm), one.check))
            .collect();
        let begun = now.difference(&self.0).count();
        let mark = Mark {
            unix_ns,
            warnings: number(now.len()),
            begun: number(begun),
        };
        (mark, Self(now))
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

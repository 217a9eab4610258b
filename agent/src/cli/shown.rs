//! The features whose values each command shows; it loads no other.
//!
//! `check` shows whether each feature works, `doctor` judges by all values, and JSON of a
//! reading contains all of them.

use std::time::Duration;

use virtlens_probe::plan::Feature;

use crate::views::snapshot::Output;
use crate::views::top;

/// A table without rates shows living threads only, and the kernel's own counters.
const BY_TABLE: [Feature; 2] = [Feature::TaskPass, Feature::FilePass];

/// Rates include threads that ended or changed their role in the interval. The measured
/// throttling decides which limit is shown.
const BY_TABLE_OF_RATES: [Feature; 5] = [
    Feature::TaskPass,
    Feature::FilePass,
    Feature::Lifetime,
    Feature::Rename,
    Feature::Throttle,
];

/// The tree shows where vCPUs run and may run.
pub(super) const BY_TOPOLOGY: [Feature; 3] =
    [Feature::TaskPass, Feature::FilePass, Feature::Placement];

/// A trace has the CPU time that was charged to each limit, and discards. The programs of
/// the trace itself record throttling and migrations.
pub(super) const BY_TRACE: [Feature; 5] = [
    Feature::TaskPass,
    Feature::FilePass,
    Feature::Lifetime,
    Feature::Rename,
    Feature::Memory,
];

pub(super) fn by_snapshot(output: Output, interval: Option<Duration>) -> &'static [Feature] {
    match (output, interval) {
        (Output::Json, _) => &Feature::ALL,
        (Output::Table, None) => &BY_TABLE,
        (Output::Table, Some(_)) => &BY_TABLE_OF_RATES,
    }
}

/// Without a terminal `top` prints one table with rates.
pub(super) fn by_top() -> &'static [Feature] {
    if top::has_terminal() {
        &Feature::ALL
    } else {
        &BY_TABLE_OF_RATES
    }
}

//! `virtlens snapshot`: one reading, or the usage between two.

use std::sync::Arc;
use std::time::Duration;

use virtlens_export::json;
use virtlens_model::judge::interval::{Interval, is_same};
use virtlens_model::judge::ready::ready;
use virtlens_model::snapshot::Snapshot;

use crate::collect::Collector;
use crate::term::Style;
use crate::views::table::render;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Aligned columns for people.
    Table,
    /// Versioned JSON for programs.
    Json,
}

/// Returns the text of a reading. With an interval it takes a second reading: the table
/// then shows rates, the JSON the second reading and CPU Ready of its VMs in the interval.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn text(
    collector: &mut Collector,
    output: Output,
    interval: Option<Duration>,
    style: Style,
) -> anyhow::Result<String> {
    let first = collector.collect();
    let (snapshot, before) = match interval {
        None => (Arc::clone(&first), None),
        Some(interval) => {
            std::thread::sleep(interval);
            (collector.collect(), Some(&*first))
        }
    };
    of(&snapshot, before, output, style)
}

/// Returns the text of a reading, or of the usage since the reading `before`.
///
/// # Errors
///
/// If the JSON cannot be generated, which would be a bug.
pub fn of(
    snapshot: &Snapshot,
    before: Option<&Snapshot>,
    output: Output,
    style: Style,
) -> anyhow::Result<String> {
    match output {
        Output::Table => Ok(render(snapshot, before, style)),
        Output::Json => {
            let mut shown = snapshot.clone();
            if let Some(before) = before {
                add_ready(&mut shown, before);
            }
            Ok(json(&shown)?)
        }
    }
}

/// Adds CPU Ready since the reading `before`. VMs that started meanwhile get none.
fn add_ready(snapshot: &mut Snapshot, before: &Snapshot) {
    let length_ns = snapshot.clock_ns.saturating_sub(before.clock_ns);
    for vm in snapshot.vms.iter_mut().filter(|_| length_ns > 0) {
        let then = before.vms.iter().find(|then| is_same(then, vm));
        vm.ready = then.map(|then| ready(&Interval::between(then, vm, length_ns)));
    }
}

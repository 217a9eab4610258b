//! `virtlens snapshot`: one reading, or what was used between two.

use std::sync::Arc;
use std::time::Duration;

use crate::collect::Collector;
use crate::term::Style;
use crate::views::table::render;

/// The shape in which a snapshot is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Aligned columns for people.
    Table,
    /// Versioned JSON for programs.
    Json,
}

/// The text of a reading. With an interval, of a second one after it: the
/// table then shows rates, the JSON the second reading.
///
/// # Errors
///
/// When the JSON cannot be made, which would be a bug.
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
    match output {
        Output::Table => Ok(render(&snapshot, before, style)),
        Output::Json => Ok(serde_json::to_string_pretty(&*snapshot)? + "\n"),
    }
}

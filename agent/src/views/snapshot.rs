//! `virtlens snapshot`: one reading, or the usage between two.

use std::sync::Arc;
use std::time::Duration;

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
/// then shows rates, the JSON the second reading.
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
    match output {
        Output::Table => Ok(render(&snapshot, before, style)),
        Output::Json => Ok(serde_json::to_string_pretty(&*snapshot)? + "\n"),
    }
}

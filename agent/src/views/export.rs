//! `virtlens record export`: the readings of a recording for other programs.

mod csv;

use virtlens_export::{Backfill, END, ExtraLabel, Selection};
use virtlens_model::snapshot::Snapshot;

use crate::views::pick::is_called;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For promtool tsdb create-blocks-from openmetrics.
    Openmetrics,
    /// One line for each reading: the JSON of virtlens snapshot.
    Jsonl,
    /// One row for each reading and VM, for a spreadsheet.
    Csv,
}

/// Writes readings one by one.
#[derive(Debug)]
pub struct Exporter {
    format: Format,
    /// The VM to export; all if `None`.
    vm: Option<String>,
}

#[derive(Debug)]
enum Format {
    Openmetrics(Box<Backfill>),
    Jsonl,
    Csv,
}

/// The fate of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was written.
    Written,
    /// It has no such VM.
    Empty,
    /// It is not after the one before, as the format requires it.
    TooEarly,
}

impl Exporter {
    /// Prepares to write the VM with this name, or all. The families and labels are for
    /// `OpenMetrics`.
    pub fn new(
        output: Output,
        vm: Option<String>,
        selection: &Selection,
        labels: &[ExtraLabel],
    ) -> Self {
        let format = match output {
            Output::Openmetrics => {
                let selection = selection.clone();
                let selection = match vm {
                    // The agent's metrics count all VMs.
                    Some(_) => selection.of_vms(),
                    None => selection,
                };
                Format::Openmetrics(Box::new(Backfill::new(selection, labels)))
            }
            Output::Jsonl => Format::Jsonl,
            Output::Csv => Format::Csv,
        };
        Self { format, vm }
    }

    /// The text before the first reading.
    pub fn start(&self) -> String {
        match self.format {
            Format::Openmetrics(_) | Format::Jsonl => String::new(),
            Format::Csv => csv::header(),
        }
    }

    /// Appends a reading of this time, ns since 1970.
    ///
    /// # Errors
    ///
    /// If the JSON cannot be generated, which would be a bug.
    pub fn add(
        &mut self,
        mut snapshot: Snapshot,
        unix_ns: u64,
        out: &mut String,
    ) -> serde_json::Result<Outcome> {
        if let Some(name) = &self.vm {
            snapshot.vms.retain(|vm| is_called(vm, name));
            if snapshot.vms.is_empty() {
                return Ok(Outcome::Empty);
            }
        }
        match &mut self.format {
            Format::Openmetrics(backfill) => {
                if !backfill.add(snapshot, unix_ns, out) {
                    return Ok(Outcome::TooEarly);
                }
            }
            Format::Jsonl => {
                out.push_str(&serde_json::to_string(&snapshot)?);
                out.push('\n');
            }
            Format::Csv => csv::rows(&snapshot, out),
        }
        Ok(Outcome::Written)
    }

    /// The text after the last reading.
    pub fn end(&self) -> &'static str {
        match self.format {
            Format::Openmetrics(_) => END,
            Format::Jsonl | Format::Csv => "",
        }
    }
}

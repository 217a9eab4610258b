//! Readings of a recording with their times, as one text for
//! `promtool tsdb create-blocks-from openmetrics`.
//!
//! The samples of all readings follow each other. `OpenMetrics` asks for the samples of a
//! family together, which would need the whole recording in memory. promtool does not need
//! it: it takes each sample by itself (Prometheus 2.42, `cmd/promtool/backfill.go`). It does
//! need rising times: in a block, an earlier sample than the last one of its series is lost.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use virtlens_model::snapshot::Snapshot;

use crate::encode::encode;
use crate::extra_label::ExtraLabel;
use crate::format::Format;
use crate::scrape::Scrape;
use crate::selection::Selection;

/// The end of the text. promtool refuses a text without it.
pub const END: &str = "# EOF\n";

/// Least time between two readings, ms. promtool computes milliseconds as floating-point
/// numbers and cuts them off, so that two times next to each other may become one.
const MIN_STEP_MS: u64 = 2;

/// Writes readings for Prometheus' backfill.
#[derive(Debug)]
pub struct Backfill {
    selection: Selection,
    /// The labels that each series gets, with a comma at the end.
    labels: String,
    last_ms: Option<u64>,
    /// The lines about families so far. Each is written once.
    described: BTreeSet<String>,
    /// A reading without times.
    reading: String,
}

impl Backfill {
    /// Prepares to write these families with these labels in addition to their own.
    pub fn new(selection: Selection, labels: &[ExtraLabel]) -> Self {
        let mut text = String::new();
        for label in labels {
            label.push(&mut text);
        }
        Self {
            selection,
            labels: text,
            last_ms: None,
            described: BTreeSet::new(),
            reading: String::new(),
        }
    }

    /// Appends the series of a reading with its time, ns since 1970: those of a scrape of it,
    /// without the state of the agent. Returns false, and appends nothing, if the time is not
    /// after that of the reading before.
    ///
    /// # Panics
    ///
    /// Never: writing to a `String` cannot fail.
    pub fn add(&mut self, snapshot: Snapshot, unix_ns: u64, out: &mut String) -> bool {
        let unix_ms = unix_ns / 1_000_000;
        let is_later = |last: u64| unix_ms >= last.saturating_add(MIN_STEP_MS);
        if !self.last_ms.is_none_or(is_later) {
            return false;
        }
        self.last_ms = Some(unix_ms);
        let scrape = Arc::new(Scrape {
            snapshot: Arc::new(snapshot),
            agent: None,
        });
        self.reading.clear();
        encode(
            &scrape,
            &self.selection,
            Format::OpenMetrics,
            &mut self.reading,
        );
        let samples = self.reading.strip_suffix(END).unwrap_or(&self.reading);
        for line in samples.lines() {
            if line.starts_with('#') {
                if !self.described.contains(line) {
                    self.described.insert(line.to_owned());
                    out.push_str(line);
                    out.push('\n');
                }
                continue;
            }
            // The name ends where the labels or the value begin.
            let name_end = line.find(['{', ' ']).unwrap_or(line.len());
            let (name, rest) = line.split_at_checked(name_end).unwrap_or((line, ""));
            out.push_str(name);
            match rest.strip_prefix('{') {
                Some(rest) => {
                    out.push('{');
                    out.push_str(&self.labels);
                    out.push_str(rest);
                }
                None if self.labels.is_empty() => out.push_str(rest),
                None => {
                    out.push('{');
                    out.push_str(self.labels.trim_end_matches(','));
                    out.push('}');
                    out.push_str(rest);
                }
            }
            let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
            writeln!(out, " {seconds}.{ms:03}").expect("writing to a String cannot fail");
        }
        true
    }
}

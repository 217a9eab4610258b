//! Snapshots as Prometheus scrapes them: counters must not fall.

use std::collections::HashMap;
use std::sync::Arc;

use virtlens_export::{Format, Selection, encode};
use virtlens_model::snapshot::Snapshot;

use crate::blank;

/// The highest value of each counter so far.
#[derive(Debug, Default)]
pub struct Counters(HashMap<String, f64>);

impl Counters {
    /// Records a snapshot; panics if a counter has fallen.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        let snapshot = Arc::new(snapshot.clone());
        self.follow_text(&exposition(snapshot, Format::Text));
    }

    /// Records the text of a scrape; panics if a counter has fallen.
    pub fn follow_text(&mut self, text: &str) {
        let samples = text.lines().filter(|line| line.starts_with("virtlens_"));
        for line in samples {
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let value: f64 = value.parse().expect("a sample's value is a number");
            let name = series.split('{').next().unwrap_or_default();
            if name.ends_with("_total") {
                let before = self.0.insert(series.to_owned(), value).unwrap_or(0.0);
                assert!(value >= before, "{series} fell from {before} to {value}");
            }
        }
    }
}

/// The text that a scrape of this snapshot returns with all metrics.
pub fn exposition(snapshot: Arc<Snapshot>, format: Format) -> String {
    text_of(snapshot, &Selection::all(), format)
}

/// The text that a scrape of this snapshot returns with the metrics of `selection`.
pub fn text_of(snapshot: Arc<Snapshot>, selection: &Selection, format: Format) -> String {
    let mut text = String::new();
    encode(&blank::reading(snapshot), selection, format, &mut text);
    text
}

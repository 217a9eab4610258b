//! Recordings whose content is known.

use std::time::Duration;

use tempfile::TempDir;
use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Limits, Recorder};
use virtlens_tests::fixture;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// 2026-01-01T00:00:00Z, ns since 1970.
const START_NS: u64 = 1_767_225_600 * SECOND;

/// The fixture at a time, seconds after the start.
pub(crate) fn reading(seconds: u64) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    let (minutes, rest) = (seconds / 60, seconds % 60);
    snapshot.time = format!("2026-01-01T00:{minutes:02}:{rest:02}Z");
    snapshot.clock_ns = seconds * SECOND;
    snapshot
}

/// A recording with these readings at these times, seconds after the start.
pub(crate) fn recording(readings: impl IntoIterator<Item = (u64, Snapshot)>) -> TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_hours(24),
    };
    let recorder = Recorder::open(folder.path(), limits, "node-a", "0.1.0", None);
    let mut recorder = recorder.expect("the folder is new");
    for (seconds, snapshot) in readings {
        let recorded = recorder.record(&snapshot, START_NS + seconds * SECOND);
        recorded.expect("there is room");
    }
    folder
}

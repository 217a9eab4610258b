//! Decodes traces with Perfetto's own protocol buffers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::need::{self, Missing};

/// A decoded trace.
#[derive(Debug, Deserialize)]
pub struct Trace {
    /// The tracks, by id.
    pub tracks: BTreeMap<u64, Track>,
    /// All slices, by their ends.
    pub slices: Vec<Slice>,
    /// All instant events: track, name, time in ns.
    pub instants: Vec<(u64, String, u64)>,
    /// The values of counters: track, time in ns, value.
    pub counts: Vec<(u64, u64, f64)>,
    /// Number of clock snapshots.
    pub clocks: usize,
}

/// One track.
#[derive(Debug, Deserialize)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Pid of its process, 0 if none.
    pub pid: u32,
    /// Tid of its thread, 0 if none.
    pub tid: u32,
    /// Id of its parent track, 0 if none.
    pub parent: u64,
}

/// An interval on a track.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "(u64, String, u64, u64, usize)")]
pub struct Slice {
    /// Id of its track.
    pub track: u64,
    /// Its name.
    pub name: String,
    /// Begin, ns.
    pub from_ns: u64,
    /// End, ns.
    pub to_ns: u64,
    /// Number of slices that contain it.
    pub depth: usize,
}

impl From<(u64, String, u64, u64, usize)> for Slice {
    fn from((track, name, from_ns, to_ns, depth): (u64, String, u64, u64, usize)) -> Self {
        Self {
            track,
            name,
            from_ns,
            to_ns,
            depth,
        }
    }
}

/// The Python packages for decoding, as scripts/unpack-wheels links them.
fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wheels")
}

/// Needs Python and Perfetto's protocol buffers for it.
///
/// # Errors
/// They were not fetched.
pub fn there() -> Result<(), Missing> {
    let is_there = packages().join("perfetto").is_dir();
    need::that("perfetto", is_there, "run scripts/unpack-wheels")
}

impl Trace {
    /// Decodes a file. Panics if the trace is incomplete, or if slices of a track do not
    /// nest.
    #[track_caller]
    pub fn decode(file: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/decode_trace.py");
        let output = Command::new("python3")
            .env("PYTHONPATH", packages())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg(script)
            .arg(file)
            .output()
            .expect("python3 starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", file.display());
        serde_json::from_slice(&output.stdout).expect("the script writes JSON")
    }

    /// The slices of a thread's own track.
    pub fn of_thread(&self, tid: u32) -> Vec<&Slice> {
        self.on(|track| track.tid == tid)
    }

    /// The slices of the guest's track below a thread's track.
    pub fn of_guest(&self, tid: u32) -> Vec<&Slice> {
        let is_guest = |track: &Track| {
            let parent = self.tracks.get(&track.parent);
            track.tid == 0 && parent.is_some_and(|parent| parent.tid == tid)
        };
        self.on(is_guest)
    }

    /// The slices of the tracks that `wanted` accepts, by their begin.
    pub fn on(&self, wanted: impl Fn(&Track) -> bool) -> Vec<&Slice> {
        let slices = self.slices.iter();
        let mut found: Vec<&Slice> = slices
            .filter(|slice| wanted(&self.tracks[&slice.track]))
            .collect();
        found.sort_by_key(|slice| (slice.from_ns, slice.depth));
        found
    }
}

/// Total duration of the slices with this prefix of their name, ns.
pub fn took_ns(slices: &[&Slice], name: &str) -> u64 {
    let named = slices.iter().filter(|slice| slice.name.starts_with(name));
    named.map(|slice| slice.to_ns - slice.from_ns).sum()
}

/// Fails unless the outermost slices follow each other without a gap.
#[track_caller]
pub fn assert_seamless(slices: &[&Slice]) {
    let outer: Vec<&&Slice> = slices.iter().filter(|slice| slice.depth == 0).collect();
    assert!(!outer.is_empty(), "there is no slice");
    for pair in outer.windows(2) {
        assert_eq!(pair[0].to_ns, pair[1].from_ns, "{pair:?}");
    }
}

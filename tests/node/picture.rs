//! A session of the plugin for the README: the cluster now, and minutes ago.

use std::fs;
use std::time::Duration;

use virtlens_tests::terminal::{Key, Recording};

use crate::cluster::Cluster;

/// Names the file for the session.
const VARIABLE: &str = "VIRTLENS_CAST";

/// `top` of the whole cluster ends after some readings.
const KEYS_OF_TOP: [Key; 1] = [Key {
    text: "q",
    after: Duration::from_secs(12),
}];

/// Records the session, if a file is wanted: `scripts/record-terminal cluster`.
pub(crate) fn record(cluster: &Cluster) {
    let Some(file) = std::env::var_os(VARIABLE) else {
        return;
    };
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut recording = Recording::new(folder.path(), cluster.environment());
    recording.run("kubectl virtlens top -A", &KEYS_OF_TOP);
    recording.run("kubectl virtlens doctor -A --since -3m", &[]);
    recording.run("kubectl virtlens incidents -A", &[]);
    let lines = recording.lines().join("\n") + "\n";
    fs::write(file, lines).expect("the file can be written");
}

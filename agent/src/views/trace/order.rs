//! Arguments of a trace.

use std::path::PathBuf;
use std::time::Duration;

/// What is wanted.
#[derive(Debug)]
pub struct Order {
    /// Name of the VM.
    pub vm: String,
    /// Duration.
    pub window: Duration,
    /// Where to; `-` is stdout.
    pub file: Option<PathBuf>,
    /// How many bytes at most.
    pub max_bytes: u64,
}

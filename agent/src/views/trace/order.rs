//! What is to be traced.

use std::path::PathBuf;
use std::time::Duration;

/// What is wanted.
#[derive(Debug)]
pub struct Order {
    /// The VM.
    pub vm: String,
    /// For how long.
    pub window: Duration,
    /// Where to; `-` is stdout.
    pub file: Option<PathBuf>,
    /// How many bytes at most.
    pub max_bytes: u64,
}

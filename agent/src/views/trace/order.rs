//! Arguments of a trace.

use std::path::PathBuf;
use std::time::Duration;

/// Arguments of a trace.
#[derive(Debug)]
pub struct Order {
    /// Name of the VM.
    pub vm: String,
    /// Duration.
    pub window: Duration,
    /// Output file; `-` is stdout. `None`: a new file named after the VM.
    pub file: Option<PathBuf>,
    /// Maximum size of the file, bytes.
    pub max_bytes: u64,
}

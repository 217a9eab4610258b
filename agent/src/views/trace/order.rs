//! Arguments of a trace.

use std::path::PathBuf;
use std::time::Duration;

use virtlens_export::timeline::Format;

/// The shape of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Protocol buffers, for ui.perfetto.dev and its tools.
    Perfetto,
    /// Chrome's older JSON, for other viewers.
    Chrome,
}

impl Shape {
    pub(super) fn format(self) -> Format {
        match self {
            Self::Perfetto => Format::Perfetto,
            Self::Chrome => Format::Chrome,
        }
    }

    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Chrome => "json",
        }
    }
}

/// What is wanted.
#[derive(Debug)]
pub struct Order {
    /// Name of the VM.
    pub vm: String,
    /// Duration.
    pub window: Duration,
    /// Where to; `-` is stdout.
    pub file: Option<PathBuf>,
    /// In which shape.
    pub shape: Shape,
    /// How many bytes at most.
    pub max_bytes: u64,
}

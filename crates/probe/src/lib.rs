//! All code that calls bpf(2).
//!
//! ```text
//! kernel ──► facts (its features) ──► plan (programs to load; reasons for the rest)
//!                                       │
//!      stream ◄── source (loader) ◄─────┘
//!         └──► decode ──► virtlens_model::facts::Facts
//! ```
//!
//! [`facts`] probes the kernel, [`plan`] decides and is pure, [`source`] loads and reads,
//! [`decode`] turns records into facts and is pure. [`trace`] traces one VM event by
//! event, with separate programs. The build script compiles the objects from `bpf/` once;
//! [`loader`] selects the library that loads them.

// No input may be able to terminate the agent.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

mod btf;
pub mod decode;
pub mod facts;
mod handover;
mod load;
pub mod loader;
#[expect(
    clippy::indexing_slicing,
    reason = "maps are named in one list, and all of it was found"
)]
mod maps;
#[expect(
    clippy::indexing_slicing,
    reason = "places below what was resized, ways of one bucket"
)]
mod memory;
mod object;
pub mod pins;
mod placement;
pub mod plan;
mod refusal;
mod retired;
pub mod source;
#[expect(unsafe_code, reason = "bpf(2)")]
mod sys;
mod throttle;
pub mod trace;
mod unchanged;

/// The compiled BPF object, the same for every loader.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/virtlens.bpf.o"));

/// The reason why a BPF source cannot be used or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan has no programs to load.
    #[error("{0}")]
    Impossible(String),
    /// The kernel rejected the programs.
    #[error("the kernel rejected the BPF programs: {0}{hint}", hint = hint(.0))]
    Load(std::io::Error),
    /// A loaded program or map differs from the object of this agent.
    #[error("{0} not found in the BPF object")]
    Missing(&'static str),
    /// An operation on a map failed.
    #[error("BPF map {map}: {cause}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// The error of the kernel.
        cause: std::io::Error,
    },
    /// A map or link cannot be pinned on bpffs or opened there.
    #[error("{}: {cause}", place.display())]
    Pin {
        /// Path on bpffs.
        place: std::path::PathBuf,
        /// The error of the kernel.
        cause: std::io::Error,
    },
    /// The stream of a pass could not be opened or read.
    #[error("the task pass failed: {0}")]
    Stream(std::io::Error),
    /// The stream contains an invalid record.
    #[error("invalid record at byte {offset} of the task pass: {what}")]
    Record {
        /// Offset in the stream, bytes.
        offset: usize,
        /// Reason.
        what: &'static str,
    },
}

impl Error {
    /// Whether a map is full, so that a retry is useless.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Map { cause, .. } if cause.raw_os_error() == Some(libc::E2BIG))
    }
}

/// Remedy for a rejection by the kernel, if one is known.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            " (requires root, or CAP_BPF and CAP_PERFMON; not possible with \
             lockdown=confidentiality)"
        }
        _ => "",
    }
}

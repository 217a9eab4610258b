//! Everything that talks to bpf(2).
//!
//! ```text
//! kernel ──► facts (what does it offer?) ──► plan (what is loaded, and why not)
//!                                              │
//!            stream ◄── source (loader) ◄──────┘
//!               └──► decode ──► virtlens_model::facts::Facts
//! ```
//!
//! [`facts`] asks, [`plan`] decides and is pure, [`source`] loads and reads,
//! [`decode`] turns records into facts and is pure. [`trace`] follows one VM event
//! by event, with programs of its own. The objects are compiled once from `bpf/`
//! by the build script; [`loader`] says who loads them.

// Nothing that is read may be able to end the agent.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

mod book;
mod btf;
pub mod decode;
pub mod facts;
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
#[expect(unsafe_code, reason = "flock(2), statfs(2) and access(2)")]
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

/// The compiled BPF object, for every loader.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/virtlens.bpf.o"));

/// Why a BPF source cannot be used, or could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan has nothing to load.
    #[error("{0}")]
    Impossible(String),
    /// The kernel refused the programs.
    #[error("the kernel refused the BPF programs: {0}{hint}", hint = hint(.0))]
    Load(std::io::Error),
    /// A loaded program or map is not what this agent expects of its object.
    #[error("the BPF object has no {0}")]
    Missing(&'static str),
    /// An operation on a map failed.
    #[error("BPF map {map}: {cause}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// A map or link cannot be put on bpffs, or be found there.
    #[error("{}: {cause}", place.display())]
    Pin {
        /// Where.
        place: std::path::PathBuf,
        /// What the kernel said.
        cause: std::io::Error,
    },
    /// The stream of a pass could not be opened or read.
    #[error("the task pass failed: {0}")]
    Stream(std::io::Error),
    /// The stream holds something that is no record.
    #[error("the task pass wrote a broken record, at byte {offset} of a read: {what}")]
    Record {
        /// Where in the stream.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

impl Error {
    /// Whether a map has no more room, so that another try is in vain.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Map { cause, .. } if cause.raw_os_error() == Some(libc::E2BIG))
    }
}

/// What to do about a refusal, where that is known.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            " (run as root, or with CAP_BPF and CAP_PERFMON; lockdown=confidentiality refuses \
             them too)"
        }
        _ => "",
    }
}

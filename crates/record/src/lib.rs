//! Recordings: the snapshots of an agent in files, as differences, bounded in bytes and age.
//!
//! ```text
//! Snapshot ─► flat: tokens and cells ─► difference ─► zstd ─► frame ─► segment
//! ```

#![forbid(unsafe_code)]
// Damaged files must never make a reader panic.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::string_slice,
        clippy::unreachable
    )
)]

mod active;
mod ahead;
mod bits;
mod columns;
mod delta;
mod dictionary;
mod flat;
mod flatten;
mod flattened;
mod frame;
mod incident;
mod incidents;
mod mark;
mod rebuild;
mod recorder;
mod recording;
mod rows;
mod segment;
mod shape;
mod update;
mod varint;

pub use self::flatten::Unsupported;
pub use self::frame::{Decoder, Error, Unreadable};
pub use self::incident::{Incident, IncidentVm, TRACE_FILE, parse_incident};
pub use self::incidents::{Incidents, UnreadableIncident, incident, incident_path, incidents};
pub use self::mark::Mark;
pub use self::rebuild::Unknown;
pub use self::recorder::{Failure, Limits, Recorder, create_folder};
pub use self::recording::{Lost, Recorded, Recording};
pub use self::segment::{Header, Refused};

//! A reading as Prometheus metrics.
//!
//! [`families`] is the one table of everything that is exported; the encoder,
//! `virtlens metrics` and the documentation all come from it. [`encode`]
//! writes a ready [`Reading`] in the [`Format`] that the scraper asked for.
//! No metric lives longer than its reading, so what a VM had vanishes with it.
//!
//! ```text
//! Snapshot + Agent = Reading ──► families ──► OpenMetrics 1.0 or text 0.0.4
//! ```

#![forbid(unsafe_code)]
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

mod agent_rows;
mod encode;
mod families;
mod family;
mod finding_rows;
mod format;
mod kind;
mod markdown;
mod memory_rows;
mod placement_rows;
mod reading;
mod samples;
mod seconds;
mod throttle_rows;
pub mod timeline;
mod vm_rows;

pub use encode::encode;
pub use families::families;
pub use family::Family;
pub use format::Format;
pub use kind::Kind;
pub use markdown::markdown;
pub use reading::{Agent, Process, Reading};

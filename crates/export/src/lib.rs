//! A reading as Prometheus metrics or JSON.
//!
//! [`families()`] is the one table of all exported families; the encoder,
//! `virtlens metrics` and the documentation are all generated from it. [`encode()`] writes
//! a finished [`Scrape`] in the [`Format`] that the scraper asked for. No metric
//! outlives its reading, so the series of a VM vanish with it.
//!
//! ```text
//! Snapshot + Agent = Scrape ──► families ──► OpenMetrics 1.0 or text 0.0.4
//! ```

#![forbid(unsafe_code)]
// No input may panic the agent.
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
mod backfill;
mod encode;
mod extra_label;
mod families;
mod family;
mod finding_rows;
mod format;
mod identity;
mod json;
mod kind;
mod kvm_rows;
mod markdown;
mod memory_rows;
mod placement_rows;
mod prepared;
mod pressure_rows;
mod profile;
mod samples;
mod scrape;
mod seconds;
mod selection;
mod throttle_rows;
pub mod timeline;
mod vcpu_sums;
mod vm_rows;

pub use backfill::{Backfill, END};
pub use encode::encode;
pub use extra_label::ExtraLabel;
pub use families::families;
pub use family::Family;
pub use format::Format;
pub use json::{json, json_line};
pub use kind::Kind;
pub use markdown::markdown;
pub use profile::Profile;
pub use scrape::{Agent, Incidents, Process, Recording, Scrape};
pub use selection::Selection;

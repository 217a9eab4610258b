//! The agent and its commands: glue between the collector and the faces.
//!
//! ```text
//! cli ─► config ─► run ───► serve (HTTP) ─┐
//!                  │ table (with --table) ─┤► readings ─► collect ─► host, probe, model
//!                  snapshot · check ───────┘   one thread, one reading for all who ask
//!                  metrics ─► the table of families in virtlens-export
//! ```

mod args;
mod backend;
pub mod catalogue;
pub mod check;
pub mod cli;
pub mod collect;
mod commands;
// What is asked of it from outside, and told in files, may not end it.
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod config;
pub mod doctor;
mod handover;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
mod keys;
mod listen;
pub mod log;
pub mod memory;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod metadata;
mod nearest;
pub mod offers;
mod options;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod page;
pub mod paint;
pub mod pick;
pub mod placement;
#[expect(unsafe_code, reason = "geteuid(2) and a CPU clock")]
pub mod process;
pub mod readings;
pub mod run;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod serve;
pub mod shortfall;
pub mod snapshot;
mod stop;
mod stray;
pub mod table;
pub mod top;
pub mod topology;
#[expect(unsafe_code, reason = "the clocks of the kernel")]
pub mod trace;

//! The agent and its commands.
//!
//! ```text
//! cli ─► config
//!  ├───► http  ─► collect::readings ─┐
//!  └───► views ──────────────────────┴─► collect ─► kube ─► host, probe, model
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | arguments, commands, signals, the log |
//! | [`config`] | flags, environment and file as one configuration |
//! | [`collect`] | readings of the host as snapshots |
//! | [`kube`] | pod names and authorization of clients, from Kubernetes |
//! | [`http`] | the server: connections, TLS, authorization, routes |
//! | [`views`] | a snapshot as a table, a live screen, findings, a drawing, a trace |
//! | [`term`] | colours, and names without control characters |

#![forbid(unsafe_code)]

pub mod cli;
pub mod collect;
// Input from clients and files must not panic the agent.
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod config;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod http;
#[cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::panic, clippy::string_slice)
)]
pub mod kube;
mod moment;
mod nearest;
pub mod process;
pub mod term;
pub mod views;

//! The agent's interfaces: whole outputs, and the real program as a black box.

mod api;
mod cluster_top;
mod compared;
mod config;
mod doctor;
mod errors;
mod exported;
mod http;
mod incidents;
mod kubectl;
mod listening;
mod outputs;
mod page;
mod pick;
mod program;
mod readings;
mod recorded;
mod replay;
mod serving;
mod stopping;
mod top;
mod topology;
mod web;

/// Path of the golden file of this name.
fn golden(name: &str) -> String {
    format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

//! Suites that need no privilege: contracts between parts of the project.

mod abi;
mod chart;
mod commands;
mod examples;
// Shared with the suite that first needed it.
#[path = "../../crates/export/tests/golden_file/mod.rs"]
mod golden_file;
mod layers;
mod packages;
mod pages;
mod programs;
mod reference;
mod site;

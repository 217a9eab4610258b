//! Suites that need no privilege: contracts between parts of the project.

mod abi;
mod chart;
mod examples;
// Of the first who needed one.
#[path = "../../crates/export/tests/golden_file/mod.rs"]
mod golden_file;
mod layers;
mod packages;
mod programs;

//! Suites that need no privilege: contracts between parts of the project.

mod abi;
mod chart;
mod examples;
mod layers;
mod packages;
mod programs;

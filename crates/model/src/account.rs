//! Monotonic counters, and charging of threads to cgroups.
//!
//! The kernel's totals are cumulative, so a total is the sum of living and retired
//! threads; nothing is accumulated from reading to reading. [`ledger`] holds all counters
//! of one VM.

#[expect(clippy::indexing_slicing, reason = "levels of one path")]
pub mod allowed;
#[expect(clippy::indexing_slicing, reason = "places that were just looked for")]
pub mod by_path;
#[expect(clippy::indexing_slicing, reason = "sums are as many as roles")]
pub mod charge;
pub mod known;
#[expect(clippy::indexing_slicing, reason = "sums are as many as roles")]
pub mod ledger;
pub mod level;
#[expect(clippy::indexing_slicing, reason = "places that were just looked for")]
pub mod level_moves;
#[expect(clippy::indexing_slicing, reason = "places in a list that it keeps")]
pub mod levels;
pub mod memory;
pub mod meter;
pub mod outermost;
pub mod quota;
pub mod sums;
pub mod throttle;
pub mod vcpu;
#[expect(clippy::indexing_slicing, reason = "places that were just looked for")]
pub mod worker;

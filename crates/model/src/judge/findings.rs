//! What is wrong with a VM, over a time: which check is raised, with what was
//! measured.
//!
//! ```text
//! two readings ─► Interval ─► quota · threads · place · memory ─► findings, ranked
//!                                  ▲ Bounds (thresholds)
//! ```
//!
//! [`Check`] says of each what its rule is and what to do. A check is raised once
//! for a VM: what it is raised for stands in the evidence.

mod bounds;
mod memory;
mod place;
mod quota;
mod remedy;
mod rules;
mod text;
mod threads;
mod watch;

pub use self::bounds::{Bound, Bounds, Unit};
pub use self::rules::judge;
pub use self::watch::Watch;

#[cfg(test)]
mod tests;

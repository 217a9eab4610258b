//! Findings about a VM over an interval: the raised checks with the measured values.
//!
//! ```text
//! two readings ─► Interval ─► quota · threads · place · memory ─► findings, ranked
//!                                  ▲ Bounds (thresholds)
//! ```
//!
//! [`Check`](crate::snapshot::Check) holds the rule and the remedy of each check. A check is raised at most once
//! per VM; the evidence names the affected objects.

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

//! Which VMs there are, what belongs to each, and what they used.
//!
//! ```text
//!            first seen          KVM holds it no more          linger over
//!   stranger ──────────► running ───────────────────► ended ──────────────► forgotten
//!                           ▲                           │
//!                           └── a VM of the same name ◄─┘  (its counters go on)
//! ```
//!
//! Totals are what the kernel says of living and ended threads together, so
//! a reading needs none before it; see [`crate::account::ledger`] for what is kept.

mod kept;
mod member;
mod memory;
mod naming;
mod pods;
mod quota;
mod reading;
mod recall;
mod registry;
mod room;
mod threads;
mod vcpus;

pub use self::kept::Kept;
pub use self::registry::Fleet;

#[cfg(test)]
mod tests;

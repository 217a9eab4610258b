//! The VMs of a host, their threads and cgroups, and their usage.
//!
//! ```text
//!            first seen          KVM no longer has it          linger expired
//!   unknown  ──────────► running ───────────────────► ended ──────────────► forgotten
//!                           ▲                           │
//!                           └── a VM of the same name ◄─┘  (its counters continue)
//! ```
//!
//! Totals are the kernel's values of living and ended threads together, so a reading
//! needs no previous one. For the state that is kept see [`crate::account::ledger`].

mod ahead;
mod buffers;
mod kept;
mod member;
mod memory;
mod naming;
mod outermost;
mod pods;
mod quota;
mod reading;
mod recall;
mod registry;
mod settle;
mod threads;
mod tracking;
mod vcpus;

pub use self::kept::Kept;
pub use self::registry::Fleet;

#[cfg(test)]
mod tests;

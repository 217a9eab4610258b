//! Reads the host on request: source, fleet, snapshot.

pub mod alerts;
mod backend;
mod collector;
mod failing;
mod handover;
mod health;
pub mod incidents;
mod judgement;
pub mod memory;
pub mod offers;
mod options;
pub mod placement;
mod reading;
pub mod readings;
pub mod recorder;
mod shortage;
pub mod traces;
mod tracing_child;
mod unapplied_limit;

pub use self::collector::Collector;
pub(crate) use self::handover::pinned_under;
pub use self::offers::CheckRow;
pub use self::options::Options;

//! Presents snapshots as text, on a screen, and as files.

pub mod catalogue;
pub mod check;
pub mod compare;
pub mod doctor;
pub mod export;
pub mod incidents;
pub mod pick;
pub mod shortfall;
pub mod snapshot;
pub mod table;
pub mod top;
pub mod topology;
pub mod trace;

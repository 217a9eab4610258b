//! Judgement of readings: how VMs sit on the host's CPUs, and what is wrong with them.

pub mod findings;
pub mod interval;
#[expect(
    clippy::indexing_slicing,
    reason = "places in lists that it makes itself"
)]
pub mod placement;
pub mod window;

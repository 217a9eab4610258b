//! Judgement of readings: placement of VMs on the host's CPUs, and findings.

pub mod around;
pub mod compare;
pub mod findings;
mod interrupts;
pub mod interval;
pub mod measure;
pub mod onset;
pub mod past;
#[expect(
    clippy::indexing_slicing,
    reason = "places in lists that it makes itself"
)]
pub mod placement;
pub mod ready;
pub mod runtime;
mod shell;
pub mod window;

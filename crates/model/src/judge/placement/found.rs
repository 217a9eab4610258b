//! A mismatch before its remedy is chosen.

use crate::judge::placement::types::HelperPlacement;
use crate::vocab::{CpuSet, MismatchKind};

/// A mismatch of a VM without its remedy.
pub(super) struct Found<'a> {
    pub(super) kind: MismatchKind,
    /// The affected vCPUs, lowest first.
    pub(super) vcpus: Vec<u32>,
    pub(super) pcpus: CpuSet,
    pub(super) evidence: String,
    pub(super) cause: Cause<'a>,
}

/// Cause of a mismatch; the remedy depends on it.
#[derive(Clone)]
pub(super) enum Cause<'a> {
    /// Pins of all affected vCPUs.
    Pins,
    /// The scheduler's choice for vCPUs that are not all pinned.
    Scheduler,
    /// Masks of several nodes, or the scheduler's choice of several nodes. This node has
    /// room for the vCPUs.
    Nodes(u32),
    /// Masks of these helper threads.
    Helpers(Vec<&'a HelperPlacement>),
    /// Memory of the first nodes, while the vCPUs are located on the second ones.
    Memory { from: Vec<u32>, to: Vec<u32> },
}

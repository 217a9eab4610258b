//! Memory of a VM as it is shown.

use serde::Serialize;

use crate::vocab::{Discards, Features};

/// A VM's memory as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// RAM that the guest was given, bytes.
    pub guest_bytes: Option<u64>,
    /// Memory of the VMM's process that is there, huge pages too, bytes.
    pub resident_bytes: Option<u64>,
    /// Of that, huge pages of hugetlbfs.
    pub resident_huge_bytes: Option<u64>,
    /// The highest of that so far.
    pub resident_peak_bytes: Option<u64>,
    /// What the cgroup with the tightest limit uses, or else the pod's.
    pub cgroup_bytes: Option<u64>,
    /// What that cgroup may use; `None` where it has no limit.
    pub cgroup_limit_bytes: Option<u64>,
    /// Page faults of the guest that KVM fixed.
    pub faults: Option<u64>,
    /// What was done with its RAM; `None` where that is not followed.
    pub discards: Option<Discards>,
    /// Reported memory that the guest took again, bytes.
    pub refault_bytes: Option<u64>,
    /// What it has to give memory back.
    pub features: Features,
}

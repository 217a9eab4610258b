//! Memory of a VM in a snapshot.

use serde::{Deserialize, Serialize};

use crate::vocab::{DirtyLogging, Discards, Features, MemoryEvents};

/// Memory of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Memory {
    /// RAM of the guest, bytes.
    pub guest_bytes: Option<u64>,
    /// Resident memory of the VMM process including huge pages, bytes.
    pub resident_bytes: Option<u64>,
    /// The part in huge pages (hugetlbfs), bytes.
    pub resident_huge_bytes: Option<u64>,
    /// Memory of the guest in `guest_memfd` files, bytes; `None` if it has none. Only the pages
    /// that the VMM has mapped are part of `resident_bytes`.
    pub guest_memfd_bytes: Option<u64>,
    /// Private memory of the VMM process in swap, bytes. The kernel does not count shared
    /// memory (memfd) in swap by process.
    pub swap_bytes: Option<u64>,
    /// Highest resident memory so far, bytes.
    pub resident_peak_bytes: Option<u64>,
    /// Memory usage of the cgroup with the tightest limit, or else of the pod's, bytes.
    pub cgroup_bytes: Option<u64>,
    /// Memory limit of this cgroup, bytes; `None` = no limit.
    pub cgroup_limit_bytes: Option<u64>,
    /// Events of the memory of its pod's cgroup (without a pod: of its machine's); `None`
    /// on v1 or without the memory controller.
    pub cgroup_events: Option<MemoryEvents>,
    /// Page faults of the guest that KVM fixed.
    pub faults: Option<u64>,
    /// Discards of the VM's RAM; `None` if they are not tracked.
    pub discards: Option<Discards>,
    /// Reported memory that the guest reused, bytes.
    pub refault_bytes: Option<u64>,
    /// Whether KVM logs which pages the guest writes; `None` if unknown.
    pub dirty_logging: Option<DirtyLogging>,
    /// Features by which the VM releases memory.
    pub features: Features,
}

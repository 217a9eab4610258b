//! Kinds of topology mismatches.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A placement problem: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MismatchKind {
    /// Guest SMT siblings on different host cores.
    SmtSplit,
    /// Two guest cores on one host core.
    SmtShared,
    /// More vCPUs pinned to pCPUs than there are pCPUs.
    VcpuOverlap,
    /// vCPUs on more NUMA nodes than they need.
    NumaSplit,
    /// vCPUs on more last-level caches than they need.
    LlcSplit,
    /// A helper thread is allowed on a pinned vCPU's pCPU.
    HelperOnVcpu,
    /// Memory on nodes without a vCPU of the VM.
    RemoteMemory,
}

impl MismatchKind {
    /// All kinds, in display order.
    pub const ALL: [Self; 7] = [
        Self::SmtSplit,
        Self::SmtShared,
        Self::VcpuOverlap,
        Self::NumaSplit,
        Self::LlcSplit,
        Self::HelperOnVcpu,
        Self::RemoteMemory,
    ];

    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmtSplit => "smt_split",
            Self::SmtShared => "smt_shared",
            Self::VcpuOverlap => "vcpu_overlap",
            Self::NumaSplit => "numa_split",
            Self::LlcSplit => "llc_split",
            Self::HelperOnVcpu => "helper_on_vcpu",
            Self::RemoteMemory => "remote_memory",
        }
    }
}

impl Serialize for MismatchKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for MismatchKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = Self::ALL.into_iter();
        let found = all.find(|kind| kind.name() == name);
        found.ok_or_else(|| Error::custom(format!("unknown mismatch {name}")))
    }
}

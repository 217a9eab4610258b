//! Kinds of topology mismatches.

use std::collections::BTreeMap;

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
    /// All kinds, in display order, which is that of their declaration.
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

/// A time for each kind of mismatch, ns. In JSON it is a map without the kinds that are unknown.
/// It allocates nothing, because each reading has one for each VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MismatchTimes([Option<u64>; MismatchKind::ALL.len()]);

impl MismatchTimes {
    /// The time of a kind, ns; `None` if it is unknown.
    #[expect(clippy::indexing_slicing, reason = "each kind has a place")]
    pub const fn of(&self, kind: MismatchKind) -> Option<u64> {
        self.0[kind as usize]
    }

    /// The time of each kind in the order of [`MismatchKind::ALL`], ns; `None` if it is unknown.
    pub const fn all(&self) -> &[Option<u64>; MismatchKind::ALL.len()] {
        &self.0
    }

    /// The kinds that are known with their times, ns.
    pub fn known(&self) -> impl Iterator<Item = (MismatchKind, u64)> {
        let kinds = MismatchKind::ALL.into_iter().zip(self.0);
        kinds.filter_map(|(kind, ns)| Some((kind, ns?)))
    }
}

impl FromIterator<(MismatchKind, u64)> for MismatchTimes {
    fn from_iter<I: IntoIterator<Item = (MismatchKind, u64)>>(times: I) -> Self {
        let mut all = Self::default();
        for (kind, ns) in times {
            if let Some(time) = all.0.get_mut(kind as usize) {
                *time = Some(ns);
            }
        }
        all
    }
}

impl Serialize for MismatchTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.known())
    }
}

impl<'de> Deserialize<'de> for MismatchTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let times = BTreeMap::<MismatchKind, Option<u64>>::deserialize(deserializer)?;
        let known = times.into_iter().filter_map(|(kind, ns)| Some((kind, ns?)));
        Ok(known.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{MismatchKind, MismatchTimes};

    #[test]
    fn kinds_are_in_order_of_declaration() {
        assert!(
            MismatchKind::ALL
                .map(|kind| kind as usize)
                .into_iter()
                .eq(0..7)
        );
    }

    #[test]
    fn unknown_time_is_absent() {
        let times = MismatchTimes::from_iter([(MismatchKind::NumaSplit, 5)]);
        let json = serde_json::to_string(&times).expect("it is a map");
        assert_eq!(json, r#"{"numa_split":5}"#);
        let read: MismatchTimes = serde_json::from_str(&json).expect("it is the same");
        assert_eq!(read, times);
        assert_eq!(read.of(MismatchKind::NumaSplit), Some(5));
        assert_eq!(read.of(MismatchKind::SmtSplit), None);
        let read: MismatchTimes = serde_json::from_str(r#"{"smt_split":null}"#).expect("no time");
        assert_eq!(read, MismatchTimes::default());
    }
}

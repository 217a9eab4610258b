//! How a VM sits on the host as it is shown.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::vocab::topology::guest::GuestShape;
use crate::vocab::{CpuSet, MismatchKind};

/// How a VM sits on the host's CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// What the guest was told, as far as its vCPUs are there.
    pub guest: Option<GuestShape>,
    /// The CPUs that the cgroups of its vCPU threads allow together, as a list; of its
    /// VMM where no vCPU was seen.
    pub cpuset: Option<CpuSet>,
    /// vCPUs that are pinned.
    pub pinned_vcpus: u32,
    /// Pairs of vCPUs that share a core, in the guest or on the host.
    pub pairs: Option<Pairs>,
    /// Why there are no pairs.
    pub unknown: Option<Unjudged>,
    /// What is wrong.
    pub mismatches: Vec<Misplaced>,
    /// CPU time that vCPUs used while something was wrong, ns, by kind.
    pub misplaced_ns: BTreeMap<MismatchKind, u64>,
}

/// A mismatch, and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Misplaced {
    /// What it is.
    #[serde(flatten)]
    pub mismatch: Mismatch,
    /// When it was first seen, RFC 3339, UTC.
    pub since: String,
}

/// One thing that is wrong with a VM's placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    /// What it is.
    pub kind: MismatchKind,
    /// The VM's vCPUs that suffer from it, by id, lowest first.
    pub vcpus: Vec<u32>,
    /// The pCPUs where it happens; in JSON a list of numbers, like the vCPUs.
    #[serde(serialize_with = "numbers")]
    pub pcpus: CpuSet,
    /// What was seen, as a sentence.
    pub evidence: String,
    /// What to do about it.
    pub remedy: &'static str,
}

fn numbers<S: Serializer>(cpus: &CpuSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(cpus.iter())
}

/// Pairs of a VM's vCPUs that sit on a core each. Pairs of which one sits
/// nowhere, or that are pinned to one pCPU, are in none of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pairs {
    /// Guest siblings on one host core.
    pub aligned: u32,
    /// Guest siblings on different host cores.
    pub split: u32,
    /// vCPUs of different guest cores on one host core, as far as `smt_shared`
    /// is raised for them.
    pub shared: u32,
}

/// Why there are no [`Pairs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// The guest's topology is not known.
    GuestTopology,
    /// The host does not tell which CPUs share a core.
    HostTopology,
    /// The host has no SMT, or it is off.
    NoSmt,
}

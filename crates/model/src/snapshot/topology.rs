//! Placement of a VM on the host in a snapshot.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::vocab::topology::guest::GuestShape;
use crate::vocab::{CpuSet, MismatchKind, MismatchTimes};

/// Placement of a VM on the host's CPUs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// The guest's topology, as far as its vCPUs exist.
    pub guest: Option<GuestShape>,
    /// Union of the cpusets of its vCPU threads' cgroups, as a list; the cpuset of its
    /// VMM if no vCPU was seen.
    pub cpuset: Option<CpuSet>,
    /// Number of pinned vCPUs.
    pub pinned_vcpus: u32,
    /// Pairs of vCPUs that share a core, in the guest or on the host.
    pub pairs: Option<Pairs>,
    /// Why the pairs are unknown.
    pub unknown: Option<Unjudged>,
    /// Present placement problems.
    pub mismatches: Vec<Misplaced>,
    /// CPU time that vCPUs used during a placement problem, ns, by kind.
    pub misplaced_ns: MismatchTimes,
    /// Time that interrupts took on the pCPUs of its vCPUs since the previous judgement;
    /// vCPUs for which it is unknown are missing.
    pub interrupts: Vec<VcpuInterrupts>,
}

/// Share of the time of host CPUs, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
pub struct Interrupts {
    /// In hard interrupts.
    pub hard: f64,
    /// In soft interrupts, most of it network and timers.
    pub soft: f64,
    /// In which the hypervisor ran something else, if the host is itself a VM.
    pub steal: f64,
}

/// Share of the time of the host CPUs on which a vCPU ran, weighted by its time on each.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
pub struct VcpuInterrupts {
    /// The vCPU, by id.
    pub vcpu: u32,
    /// The shares.
    #[serde(flatten)]
    pub interrupts: Interrupts,
}

/// A placement problem and its start.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Misplaced {
    /// The placement problem.
    #[serde(flatten)]
    pub mismatch: Mismatch,
    /// Time when it was first seen, RFC 3339, UTC.
    pub since: String,
}

/// A placement problem of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mismatch {
    /// Kind of the problem.
    pub kind: MismatchKind,
    /// The affected vCPUs of the VM, by id, lowest first.
    pub vcpus: Vec<u32>,
    /// The affected pCPUs; in JSON a list of numbers, like the vCPUs.
    #[serde(serialize_with = "numbers", deserialize_with = "of_numbers")]
    pub pcpus: CpuSet,
    /// NUMA nodes of the remote memory, lowest first; empty for other kinds.
    #[serde(default)]
    pub memory_nodes: Vec<u32>,
    /// The observation, as a sentence.
    pub evidence: String,
    /// The remedy for the VM's runtime, as commands or settings. Mismatches of one kind of
    /// a VM have the same remedy.
    pub remedy: String,
}

fn numbers<S: Serializer>(cpus: &CpuSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(cpus.iter())
}

fn of_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
    Ok(Vec::<u32>::deserialize(deserializer)?.into_iter().collect())
}

/// Pairs of a VM's vCPUs that are each located on a core. A pair with an unlocated vCPU,
/// or with both vCPUs pinned to one pCPU, is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Pairs {
    /// Guest siblings on one host core.
    pub aligned: u32,
    /// Guest siblings on different host cores.
    pub split: u32,
    /// vCPUs of different guest cores on one host core, if `smt_shared` is raised for
    /// them.
    pub shared: u32,
}

/// Why the [`Pairs`] are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// The guest's topology is unknown.
    GuestTopology,
    /// The host's core siblings are unknown.
    HostTopology,
    /// The host has no SMT, or SMT is off.
    NoSmt,
}

//! One reading, judged: the structure that every face shows, and the JSON
//! that `virtlens snapshot -o json` prints.
//!
//! `apiVersion` changes when a field changes its meaning or goes; fields may
//! be added at any time. An absent value is `null`, never 0.

mod check;
mod finding;
mod memory;
mod quota;
mod topology;
mod vcpu;
mod vm;

use serde::Serialize;

pub use self::check::{About, Check, Severity};
pub use self::finding::{Finding, Findings};
pub use self::memory::Memory;
pub use self::quota::{Quota, Throttle, UnappliedLimit};
pub use self::topology::{Mismatch, Misplaced, Pairs, Topology, Unjudged};
pub use self::vcpu::{Vcpu, VcpuCount};
pub use self::vm::{RoleUse, Thread, Vm, Worker};

/// The version of the JSON shape.
pub const API_VERSION: &str = "virtlens/v1";

/// One reading of one node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Always [`API_VERSION`].
    pub api_version: &'static str,
    /// Always "Snapshot".
    pub kind: &'static str,
    /// When it was taken, RFC 3339, UTC.
    pub time: String,
    /// The same on a clock of the agent's own that never jumps, ns: what two
    /// readings of one agent differ by is the time between them.
    #[serde(skip)]
    pub clock_ns: u64,
    /// How old the values of the VMs are, ns: 0 unless this reading failed; `None` where
    /// none has worked. After some failures in a row there are no VMs, and then it is not
    /// known which there are.
    #[serde(rename = "reading_age_ns")]
    pub reading_age_ns: Option<u64>,
    /// The node.
    pub node: Node,
    /// What was read, and what could not be.
    pub sources: Vec<Source>,
    /// What was lost since the agent started, by reason; a closed set, with
    /// its zeros.
    pub dropped: Vec<Dropped>,
    /// The BPF maps and how full they are.
    pub maps: Vec<MapFill>,
    /// The BPF programs and what they cost, where the kernel keeps count.
    pub programs: Vec<ProgramCost>,
    /// The VMs, in the order of their pods' uids, then of their names.
    pub vms: Vec<Vm>,
}

impl Snapshot {
    /// Whether the VMs are all that there are, or were when a reading last worked.
    pub fn knows_vms(&self) -> bool {
        self.reading_age_ns == Some(0) || !self.vms.is_empty()
    }
}

/// One way in which something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The reason, from a closed set.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
}

/// A BPF map and how full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MapFill {
    /// Its name.
    pub map: &'static str,
    /// Entries in it, where that can be counted.
    pub entries: Option<u64>,
    /// Entries that it can hold.
    pub max_entries: u64,
}

/// A BPF program, what it cost and what it missed. The kernel counts the cost only
/// while `kernel.bpf_stats_enabled` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name.
    pub program: &'static str,
    /// How often it ran.
    pub runs: u64,
    /// How long it ran, ns, over all runs.
    pub run_ns: u64,
    /// How often the kernel left it out, since it was interrupted on the same CPU;
    /// 0 before v5.12, which leaves none out.
    pub missed: u64,
}

/// The node that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its name (`NODE_NAME`, or the host name).
    pub name: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// How many CPUs are online.
    pub cpus: u32,
    /// "v1" or "v2": where the cpu controller lives.
    pub cgroup: &'static str,
}

/// A source of facts and how it fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Its name, from a closed set.
    pub name: &'static str,
    /// Whether it works.
    pub up: bool,
    /// In which way it works ("bpf", "proc", "off" …).
    pub mode: &'static str,
    /// Why it does not, or not fully; empty when all is well.
    pub reason: String,
    /// What the last reading took, ns.
    pub duration_ns: Option<u64>,
    /// How long ago it last told how things are, ns; only of sources that tell by
    /// themselves.
    pub age_ns: Option<u64>,
}

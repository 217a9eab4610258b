//! One interpreted reading: the structure behind every output, and the JSON that
//! `virtlens snapshot -o json` prints.
//!
//! `apiVersion` changes when a field is removed or changes its meaning; fields may be
//! added at any time. An absent value is `null`, never 0.

mod check;
mod finding;
mod memory;
mod quota;
mod ready;
mod tenant;
mod topology;
mod vcpu;
mod vm;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::check::{About, Check, Severity};
pub use self::finding::{Finding, Findings};
pub use self::memory::Memory;
pub use self::quota::{Quota, UnappliedLimit};
pub use self::ready::{Ready, TimeRange, VcpuReady};
pub use self::topology::{
    Interrupts, Mismatch, Misplaced, Pairs, Topology, Unjudged, VcpuInterrupts,
};
pub use self::vcpu::{Vcpu, VcpuCount};
pub use self::vm::{RoleUse, Thread, Vm, Worker};

use crate::vocab::name::{self, Name};
use crate::vocab::topology::host::HostTopology;

/// The version of the JSON shape.
pub const API_VERSION: &str = "virtlens/v1";

/// One reading of one node.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Always [`API_VERSION`].
    #[serde(deserialize_with = "name::known")]
    pub api_version: Name,
    /// Always "Snapshot".
    #[serde(deserialize_with = "name::known")]
    pub kind: Name,
    /// Time of the reading, RFC 3339, UTC.
    pub time: String,
    /// Time of the reading on a monotonic clock of the agent, ns. The difference between
    /// two readings of one agent is the time between them.
    #[serde(rename = "clock_ns")]
    pub clock_ns: u64,
    /// Age of the values of the VMs, ns: 0 unless this reading failed; `None` if no
    /// reading has succeeded. After several consecutive failures the list of VMs is empty
    /// and the set of VMs is unknown.
    #[serde(rename = "reading_age_ns")]
    pub reading_age_ns: Option<u64>,
    /// The node.
    pub node: Node,
    /// The online CPUs of the node and their places, shared between readings; without CPUs
    /// if they are unknown.
    #[serde(default)]
    pub host: Arc<HostTopology>,
    /// The sources of facts and their state.
    pub sources: Vec<Source>,
    /// Losses since the agent started, by reason: a closed set, including zeros.
    pub dropped: Vec<Dropped>,
    /// The BPF maps and their fill level.
    pub maps: Vec<MapFill>,
    /// The BPF programs and their cost, if the kernel counts it.
    pub programs: Vec<ProgramCost>,
    /// The VMs, sorted by pod uid, then by name.
    pub vms: Vec<Vm>,
}

impl Snapshot {
    /// The snapshot without its VMs.
    #[must_use]
    pub fn without_vms(&self) -> Self {
        Self {
            api_version: self.api_version,
            kind: self.kind,
            time: self.time.clone(),
            clock_ns: self.clock_ns,
            reading_age_ns: self.reading_age_ns,
            node: self.node.clone(),
            host: Arc::clone(&self.host),
            sources: self.sources.clone(),
            dropped: self.dropped.clone(),
            maps: self.maps.clone(),
            programs: self.programs.clone(),
            vms: Vec::new(),
        }
    }

    /// Whether the list of VMs is complete as of the last successful reading.
    pub fn knows_vms(&self) -> bool {
        self.reading_age_ns == Some(0) || !self.vms.is_empty()
    }
}

/// Losses of one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct Dropped {
    /// The reason, from a closed set.
    #[serde(deserialize_with = "name::known")]
    pub reason: Name,
    /// Number of losses.
    pub count: u64,
}

/// A BPF map and its fill level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct MapFill {
    /// Name of the map.
    #[serde(deserialize_with = "name::known")]
    pub map: Name,
    /// Entries in the map, if they can be counted.
    pub entries: Option<u64>,
    /// Capacity, entries.
    pub max_entries: u64,
}

/// A BPF program, its cost and its missed runs. The kernel counts the cost only while
/// `kernel.bpf_stats_enabled` is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProgramCost {
    /// Name of the program.
    #[serde(deserialize_with = "name::known")]
    pub program: Name,
    /// Number of runs.
    pub runs: u64,
    /// Time of all runs, ns.
    pub run_ns: u64,
    /// Number of runs that the kernel skipped because the program was interrupted on the
    /// same CPU; 0 before v5.12, which skips none.
    pub missed: u64,
}

/// The node that was read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Node {
    /// Name of the node (`NODE_NAME`, or the host name).
    pub name: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Cgroup version of the cpu controller: "v1" or "v2".
    #[serde(deserialize_with = "name::known")]
    pub cgroup: Name,
}

/// A source of facts and its state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Source {
    /// Name of the source, from a closed set.
    #[serde(deserialize_with = "name::known")]
    pub name: Name,
    /// Whether the source works.
    pub up: bool,
    /// Mode of operation ("bpf", "proc", "off" …). "idle": its programs are not attached,
    /// because no VM runs.
    #[serde(deserialize_with = "name::known")]
    pub mode: Name,
    /// Why the source is down or limited; empty if it works fully.
    pub reason: String,
    /// Duration of the last reading, ns.
    pub duration_ns: Option<u64>,
    /// Time since the last update, ns; only for sources that push updates.
    pub age_ns: Option<u64>,
}

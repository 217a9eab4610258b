//! Placement of VMs: the host's topology, updated on CPU hotplug, and its judgement every
//! [`JUDGED_EVERY`].

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use virtlens_host::{Cgroups, HostRoot, Losses, TopologyFiles, TopologyStamp};
use virtlens_model::facts::Pcpus;
use virtlens_model::judge::window::{CgroupBounds, Window};
use virtlens_model::snapshot::{Topology, Vm};
use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::HostTopology;

/// Interval at which the residency of vCPUs is read and judged. The data is large on a
/// host with many CPUs, and a shorter interval shows little about a floating thread.
const JUDGED_EVERY: Duration = Duration::from_secs(10);

/// Interval at which the cpusets of VMs are read: three files for each VM, a millisecond
/// and more on a full node. They hardly ever change, and are only displayed.
const CPUSETS_READ_EVERY: Duration = Duration::from_mins(1);

/// The host's topology and the last judgement of its VMs.
#[derive(Debug)]
pub struct Placement {
    /// Start of the clock of its readings.
    started: Timestamp,
    host: Arc<HostTopology>,
    files: TopologyFiles,
    stamp: Option<TopologyStamp>,
    window: Window,
    is_hastened: bool,
    /// Cpusets by the VMM's pid. `cpusets_of_ns` is when they were last cleared, ns after
    /// the start.
    cpusets: FxHashMap<u32, Option<CpuSet>>,
    cpusets_of_ns: u64,
    /// Reason that the host's topology is unknown; empty if it is known.
    failure: String,
    losses: Losses,
}

impl Default for Placement {
    /// An unread host, on a clock that starts now.
    fn default() -> Self {
        Self {
            started: Timestamp::now(),
            host: Arc::default(),
            files: TopologyFiles::default(),
            stamp: None,
            window: Window::default(),
            is_hastened: false,
            cpusets: FxHashMap::default(),
            cpusets_of_ns: 0,
            failure: String::new(),
            losses: Losses::default(),
        }
    }
}

impl Placement {
    /// Reads the host's topology if it changed since the last call; returns whether it
    /// changed. Each call must have the same `root`.
    pub fn look(&mut self, root: &HostRoot) -> bool {
        let stamp = self.files.stamp(root);
        if self.stamp.as_ref() == Some(&stamp) {
            return false;
        }
        let mut losses = Losses::default();
        let host = virtlens_host::topology(root, &mut losses);
        let is_new = match host {
            Ok(host) => {
                self.failure.clear();
                let is_new = *self.host != host;
                if is_new {
                    self.host = Arc::new(host);
                }
                is_new
            }
            Err(error) => {
                losses.count(&error);
                self.failure = error.to_string();
                false
            }
        };
        // After losses the topology is read again.
        self.stamp = (losses == Losses::default()).then_some(stamp);
        self.losses.add(losses);
        is_new
    }

    /// The host's topology as of the last read; the same object until it changes.
    pub fn host(&self) -> &Arc<HostTopology> {
        &self.host
    }

    /// Number of topology values that could not be read.
    pub fn lost(&self) -> u64 {
        let lost = self.losses;
        lost.races + lost.denied + lost.unparsed + lost.over_limit
    }

    /// Reason that the host's topology is unknown; empty if it is known.
    pub fn failure(&self) -> &str {
        &self.failure
    }

    /// Makes the next reading judge, regardless of the interval.
    pub fn hasten(&mut self) {
        self.is_hastened = true;
    }

    /// Whether a judgement is due, `now_ns` after the start.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let every_ns = u64::try_from(JUDGED_EVERY.as_nanos()).unwrap_or(u64::MAX);
        let age_ns = self.window.age_ns(now_ns);
        self.is_hastened || age_ns.is_none_or(|age_ns| age_ns >= every_ns)
    }

    /// Judges all VMs of the host by the residency of their vCPUs that was just read.
    pub fn judge(&mut self, vms: &[Vm], root: &HostRoot, cgroups: Option<&Cgroups>, now_ns: u64) {
        let most_ns = u64::try_from(CPUSETS_READ_EVERY.as_nanos()).unwrap_or(u64::MAX);
        self.is_hastened = false;
        if now_ns.saturating_sub(self.cpusets_of_ns) >= most_ns {
            self.cpusets.clear();
            self.cpusets_of_ns = now_ns;
        }
        for vm in vms.iter().filter(|vm| vm.running) {
            let read = || {
                let vcpus: Vec<u32> = vm.vcpus.iter().filter_map(|vcpu| vcpu.tid).collect();
                let known = if vcpus.is_empty() {
                    vec![vm.pid]
                } else {
                    vcpus
                };
                cgroups.and_then(|cgroups| cgroups.cpuset(&known))
            };
            self.cpusets.entry(vm.pid).or_insert_with(read);
        }
        // All dates derive from one start time, so that the date of a finding never
        // changes once reported.
        let date = |at_ns: u64| {
            let since = SignedDuration::from_nanos(i64::try_from(at_ns).unwrap_or(i64::MAX));
            let at = self.started.saturating_add(since).unwrap_or(self.started);
            format!("{at:.0}")
        };
        let has_nodes = self.host.nodes().count() > 1;
        let bounds = |vm: &Vm| {
            let cgroup = vm.cgroup.as_deref().filter(|_| has_nodes);
            CgroupBounds {
                memory_by_node: cgroup.and_then(|path| cgroups?.memory_by_node(path)),
                cpuset: self.cpusets.get(&vm.pid).cloned().flatten(),
            }
        };
        let pcpus = virtlens_host::pcpus(root).unwrap_or_else(|error| {
            self.losses.count(&error);
            Pcpus::new()
        });
        self.window
            .judge(&self.host, vms, bounds, pcpus, now_ns, date);
    }

    /// The last judgement of a VM.
    pub fn topology(&self, vm: &Vm) -> Option<Arc<Topology>> {
        self.window.topology(vm)
    }
}

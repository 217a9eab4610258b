//! Where VMs sit: the host's topology, kept true while CPUs come and go, and
//! the judgement of it every [`JUDGED_EVERY`].

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use virtlens_host::{Cgroups, HostRoot, Losses, TopologyMark};
use virtlens_model::judge::window::{CgroupBounds, Window};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::topology::host::HostTopology;

/// How often where vCPUs ran is read and judged: on a host of many CPUs it is
/// much to read, and a shorter time says little of a thread that floats.
const JUDGED_EVERY: Duration = Duration::from_secs(10);

/// How often is asked what CPUs a VM's cgroup allows: three files for each VM, a
/// millisecond and more on a full node. It hardly ever changes, and is shown only.
const CPUSETS_READ_EVERY: Duration = Duration::from_mins(1);

/// The host's topology and the last judgement of its VMs.
#[derive(Debug)]
pub struct Placement {
    /// When the clock of its readings began.
    started: Timestamp,
    host: HostTopology,
    mark: Option<TopologyMark>,
    window: Window,
    is_hastened: bool,
    /// By VMM's pid, and when they were last forgotten, ns after the start.
    cpusets: FxHashMap<u32, Option<CpuSet>>,
    cpusets_of_ns: u64,
    /// Why the host's topology is not known; empty if it is.
    failure: String,
    losses: Losses,
}

impl Default for Placement {
    /// Of a host that was not read yet, on a clock that begins now.
    fn default() -> Self {
        Self {
            started: Timestamp::now(),
            host: HostTopology::default(),
            mark: None,
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
    /// Reads the host's topology if it changed since the last time. True if it
    /// did.
    pub fn look(&mut self, root: &HostRoot) -> bool {
        let mark = virtlens_host::topology_mark(root);
        if self.mark.as_ref() == Some(&mark) {
            return false;
        }
        let mut losses = Losses::default();
        let host = virtlens_host::topology(root, &mut losses);
        let is_new = match host {
            Ok(host) => {
                self.failure.clear();
                let is_new = self.host != host;
                self.host = host;
                is_new
            }
            Err(error) => {
                losses.count(&error);
                self.failure = error.to_string();
                false
            }
        };
        // What could not be read is asked for again.
        self.mark = (losses == Losses::default()).then_some(mark);
        self.losses.add(losses);
        is_new
    }

    /// The host's topology as last read.
    pub fn host(&self) -> &HostTopology {
        &self.host
    }

    /// How much of the host's topology could not be read.
    pub fn lost(&self) -> u64 {
        let lost = self.losses;
        lost.races + lost.denied + lost.unparsed + lost.over_limit
    }

    /// Why the host's topology is not known; empty if it is.
    pub fn failure(&self) -> &str {
        &self.failure
    }

    /// Judges at the next reading, whenever that is.
    pub fn hasten(&mut self) {
        self.is_hastened = true;
    }

    /// Whether it is time to judge, `now_ns` after the start.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let every_ns = u64::try_from(JUDGED_EVERY.as_nanos()).unwrap_or(u64::MAX);
        let age_ns = self.window.age_ns(now_ns);
        self.is_hastened || age_ns.is_none_or(|age_ns| age_ns >= every_ns)
    }

    /// Judges all VMs of the host, with where their vCPUs ran just read.
    pub fn judge(&mut self, vms: &[Vm], cgroups: Option<&Cgroups>, now_ns: u64) {
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
        // Of one start for all, so that a finding's date stays as it was told.
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
        self.window.judge(&self.host, vms, bounds, now_ns, date);
    }

    /// Adds to each VM its last judgement, and to each vCPU where its pCPU is.
    pub fn show(&self, vms: &mut [Vm]) {
        self.window.show(&self.host, vms);
    }
}

//! The header data of a timeline file.

use rustc_hash::FxHashMap;
use virtlens_model::timeline::Counter;
use virtlens_model::vocab::CgroupId;

/// The header data of a timeline file.
#[derive(Debug, Clone)]
pub struct Title {
    /// Display name of the VM.
    pub vm: String,
    /// Names of the VM's processes, by process id.
    pub processes: FxHashMap<u32, String>,
    /// Names of the cgroups whose quotas limit the VM.
    pub quotas: FxHashMap<CgroupId, String>,
    /// Start of the recording.
    pub began: Clocks,
}

/// One moment on three clocks, ns.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, the clock of the pieces.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`, the clock of the file.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: u64,
}

impl Title {
    /// Converts a time of a piece to the clock of the file, ns.
    pub(super) fn file_ns(&self, monotonic_ns: u64) -> u64 {
        let boottime_ns = self.began.boottime_ns.saturating_add(monotonic_ns);
        boottime_ns.saturating_sub(self.began.monotonic_ns)
    }

    pub(super) fn quota(&self, group: CgroupId) -> String {
        let name = self.quotas.get(&group);
        format!("quota {}", name.map_or("of a cgroup", |name| name))
    }

    pub(super) fn process(&self, pid: u32) -> String {
        let name = self.processes.get(&pid).map_or("process", |name| name);
        format!("{}: {name}", self.vm)
    }

    pub(super) fn counter(&self, counter: Counter) -> (String, &'static str) {
        match counter {
            Counter::QuotaUsed(group) => (format!("{} used", self.quota(group)), "cores"),
            Counter::Resident => ("resident memory".to_owned(), "bytes"),
            Counter::Lost => ("events lost".to_owned(), "events"),
        }
    }
}

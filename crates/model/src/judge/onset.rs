//! Onsets of warnings: which VM has a warning that it did not have before.
//!
//! Times are in ns since 1970, as those of incidents of earlier agents. A time in the future,
//! which a clock that was set back leaves behind, counts as long ago.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::snapshot::{Check, Finding, Severity, Snapshot, Vm};

const MINUTE_NS: u64 = 60_000_000_000;

/// A warning that was absent for less than this continues. A load that comes and goes each
/// minute is one warning.
const LONGEST_PAUSE_NS: u64 = 5 * MINUTE_NS;

/// Shortest time between two incidents of a VM. One lasts six minutes, so a second one would
/// mostly repeat the recording of the first.
const VM_NS: u64 = 10 * MINUTE_NS;

/// Most incidents of a node within [`NODE_NS`]. A cause that affects all VMs of a node, such as
/// too few CPUs, does not fill the disk with the same recording.
const MAX_ON_NODE: usize = 6;
const NODE_NS: u64 = 60 * MINUTE_NS;

/// Why an onset makes no incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The VM had an incident in the last 10 min.
    VmRate,
    /// The node had 6 incidents in the last hour.
    NodeRate,
    /// The disk refused it.
    Failed,
}

impl Skip {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::VmRate, Self::NodeRate, Self::Failed];

    /// Name in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::VmRate => "vm_rate",
            Self::NodeRate => "node_rate",
            Self::Failed => "failed",
        }
    }
}

/// Warnings that began on a VM in one reading.
#[derive(Debug)]
pub struct Onset<'s> {
    /// The VM.
    pub vm: &'s Vm,
    /// The warnings that began, by rank.
    pub findings: Vec<&'s Finding>,
    /// Why they make no incident; `None` if they do.
    pub skip: Option<Skip>,
}

/// Finds onsets in the readings of a node.
#[derive(Debug, Default)]
pub struct Onsets {
    /// By pid and name, as in [`is_same`](crate::judge::interval::is_same).
    vms: FxHashMap<(u32, Arc<str>), Known>,
    /// Times of the incidents in the last [`NODE_NS`].
    incidents_ns: Vec<u64>,
}

/// A VM with warnings.
#[derive(Debug, Default)]
struct Known {
    /// Time of the last reading with each warning.
    warned_ns: Vec<(Check, u64)>,
    /// Time of its last incident.
    incident_ns: Option<u64>,
}

impl Known {
    /// Notes a warning; returns whether it begins.
    fn begins(&mut self, check: Check, now_ns: u64) -> bool {
        let mut known = self.warned_ns.iter_mut();
        if let Some((_, last_ns)) = known.find(|(known, _)| *known == check) {
            let last_ns = std::mem::replace(last_ns, now_ns);
            return !is_within(last_ns, now_ns, LONGEST_PAUSE_NS);
        }
        self.warned_ns.push((check, now_ns));
        true
    }
}

impl Onsets {
    /// Notes an incident of an earlier agent on the VM `vm` of process `pid`.
    pub fn add_incident(
        &mut self,
        pid: u32,
        vm: &Arc<str>,
        checks: impl IntoIterator<Item = Check>,
        unix_ns: u64,
    ) {
        let known = self.vms.entry((pid, Arc::clone(vm))).or_default();
        known.incident_ns = known.incident_ns.max(Some(unix_ns));
        for check in checks {
            known.begins(check, unix_ns);
        }
        self.incidents_ns.push(unix_ns);
    }

    /// Notes the warnings of an earlier agent's last reading, which do not begin again.
    pub fn resume(&mut self, snapshot: &Snapshot, unix_ns: u64) {
        for vm in &snapshot.vms {
            self.begun(vm, unix_ns);
        }
    }

    /// The onsets in a reading, the worst ones first. A VM that is seen for the first time
    /// with a warning has an onset, too.
    pub fn add<'s>(&mut self, snapshot: &'s Snapshot, unix_ns: u64) -> Vec<Onset<'s>> {
        self.forget(unix_ns);
        let vms = snapshot.vms.iter();
        let mut onsets: Vec<Onset<'s>> = vms
            .map(|vm| Onset {
                vm,
                findings: self.begun(vm, unix_ns),
                skip: None,
            })
            .filter(|onset| !onset.findings.is_empty())
            .collect();
        onsets.sort_by(|a, b| match (a.findings.first(), b.findings.first()) {
            (Some(a), Some(b)) => a.by_rank(b),
            _ => std::cmp::Ordering::Equal,
        });
        for onset in &mut onsets {
            onset.skip = self.skip(onset.vm, unix_ns);
        }
        onsets
    }

    /// The warnings of a VM that begin.
    fn begun<'s>(&mut self, vm: &'s Vm, unix_ns: u64) -> Vec<&'s Finding> {
        let findings = vm.findings.iter().flat_map(|found| found.iter());
        let mut warnings = findings
            .filter(|finding| finding.severity == Severity::Warning)
            .peekable();
        if warnings.peek().is_none() {
            return Vec::new();
        }
        let known = self.vms.entry((vm.pid, Arc::clone(&vm.vm))).or_default();
        warnings
            .filter(|warning| known.begins(warning.check, unix_ns))
            .collect()
    }

    /// Returns the reason why a VM gets no incident now; without a reason, an incident counts for
    /// the rates.
    pub fn skip(&mut self, vm: &Vm, unix_ns: u64) -> Option<Skip> {
        let known = self.vms.entry((vm.pid, Arc::clone(&vm.vm))).or_default();
        let is_recent = |last_ns| is_within(last_ns, unix_ns, VM_NS);
        if known.incident_ns.is_some_and(is_recent) {
            return Some(Skip::VmRate);
        }
        if self.incidents_ns.len() >= MAX_ON_NODE {
            return Some(Skip::NodeRate);
        }
        known.incident_ns = Some(unix_ns);
        self.incidents_ns.push(unix_ns);
        None
    }

    /// Drops all that no longer matters.
    fn forget(&mut self, now_ns: u64) {
        self.incidents_ns
            .retain(|time_ns| is_within(*time_ns, now_ns, NODE_NS));
        self.vms.retain(|_, known| {
            known
                .warned_ns
                .retain(|(_, last_ns)| is_within(*last_ns, now_ns, LONGEST_PAUSE_NS));
            known.incident_ns = known
                .incident_ns
                .filter(|last_ns| is_within(*last_ns, now_ns, VM_NS));
            !known.warned_ns.is_empty() || known.incident_ns.is_some()
        });
    }
}

/// Whether less than `length_ns` has passed since `then_ns`.
fn is_within(then_ns: u64, now_ns: u64, length_ns: u64) -> bool {
    now_ns
        .checked_sub(then_ns)
        .is_some_and(|passed_ns| passed_ns < length_ns)
}

#[cfg(test)]
mod tests;

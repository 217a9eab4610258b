//! Differences between two windows of the same VMs.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::judge::interval::Interval;
use crate::judge::measure::{Instant, Measure, Measured, Unit};
use crate::judge::past::{Found, Past, PastVm};
use crate::snapshot::{Snapshot, Vm};
use crate::vocab::CpuSet;

/// A window: its VMs with their findings and measures.
#[derive(Debug, Default)]
pub struct Observed {
    past: Past,
    /// By pid and name.
    measured: FxHashMap<(u32, Arc<str>), Measured>,
}

impl Observed {
    /// Adds a reading of this time, ns since 1970; readings are added in their order.
    pub fn add(&mut self, snapshot: Snapshot, unix_ns: u64) {
        let clock_ns = snapshot.clock_ns;
        for vm in snapshot.vms.iter().filter(|vm| vm.running) {
            let key = (vm.pid, Arc::clone(&vm.vm));
            let measured = self.measured.entry(key).or_default();
            let length_ns = measured.step(Instant { clock_ns, unix_ns });
            if let Some((before, length_ns)) = self.past.of(vm).zip(length_ns) {
                measured.add(&Interval::between(&before.vm, vm, length_ns));
            }
        }
        self.past.add(snapshot, unix_ns);
    }

    /// The VMs in the order in which they were seen first.
    pub fn vms(&self) -> &[PastVm] {
        self.past.vms()
    }

    fn measured(&self, vm: &Vm) -> Option<&Measured> {
        self.measured.get(&(vm.pid, Arc::clone(&vm.vm)))
    }

    /// The VM that was in the place of `vm`: the same one, else the last one of the same pod,
    /// else the last one of the same name.
    fn counterpart(&self, vm: &Vm) -> Option<&PastVm> {
        let last = |is_it: &dyn Fn(&Vm) -> bool| {
            let mut vms = self.vms().iter().rev();
            vms.find(|one| is_it(&one.vm))
        };
        let is_pod = |one: &Vm| {
            let is_known = vm.namespace.is_some() && vm.pod.is_some();
            is_known && (&one.namespace, &one.pod) == (&vm.namespace, &vm.pod)
        };
        let same = self.past.of(vm).or_else(|| last(&is_pod));
        same.or_else(|| last(&|one: &Vm| one.vm == vm.vm))
    }
}

/// A VM in two windows.
#[derive(Debug)]
pub struct Compared<'a> {
    /// The VM in the window of comparison.
    pub before: &'a PastVm,
    /// The VM in the judged window.
    pub now: &'a PastVm,
    /// All findings of both, warnings first; `None` if the VM was not judged in both windows.
    pub findings: Option<Vec<FindingChange<'a>>>,
    /// The measures that changed, the largest ratio first.
    pub values: Vec<ValueChange>,
    /// The pCPUs on which its vCPUs were before and now, if they are other ones.
    pub pcpus: Option<[CpuSet; 2]>,
}

/// A finding in two windows.
#[derive(Debug, Clone, Copy)]
pub enum FindingChange<'a> {
    /// It is in the judged window only.
    Appeared(&'a Found),
    /// It is in the window of comparison only.
    Ended(&'a Found),
    /// It is in both.
    Remained {
        /// In the window of comparison.
        before: &'a Found,
        /// In the judged window.
        now: &'a Found,
    },
}

/// A measure that changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueChange {
    /// The measure.
    pub measure: Measure,
    /// Its mean in the window of comparison.
    pub before: f64,
    /// Its mean in the judged window.
    pub now: f64,
    /// The larger value divided by the smaller one; values below [`least`] count as that.
    pub ratio: f64,
}

/// The VMs of two windows.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The VMs that are in both.
    pub both: Vec<Compared<'a>>,
    /// The VMs that are only in the window of comparison.
    pub only_before: Vec<&'a PastVm>,
    /// The VMs that are only in the judged window.
    pub only_now: Vec<&'a PastVm>,
}

/// Least part of the smaller value by which a measure changes.
pub const LEAST_PART: f64 = 0.25;

/// Least change of a measure that is listed, in its unit. Smaller ones are noise.
pub const fn least(measure: Measure) -> f64 {
    match (measure, measure.unit()) {
        (Measure::Limit | Measure::Vcpus, _) => 0.01,
        (_, Unit::Cores) => 0.05,
        (_, Unit::Share) => 0.02,
        (_, Unit::Seconds) => 0.0001,
        (_, Unit::PerSecond) => 100.0,
        (_, Unit::Count) => 1.0,
        (_, Unit::Bytes) => 67_108_864.0,
    }
}

/// Compares the VMs of the window `now` with those of the window `before`.
pub fn compare<'a>(before: &'a Observed, now: &'a Observed) -> Comparison<'a> {
    let (mut both, mut only_now) = (Vec::new(), Vec::new());
    let mut is_matched = vec![false; before.vms().len()];
    for vm in now.vms() {
        let Some(then) = before.counterpart(&vm.vm) else {
            only_now.push(vm);
            continue;
        };
        let pairs = before.vms().iter().zip(&mut is_matched);
        let same = pairs.filter(|(one, _)| std::ptr::eq(*one, then));
        same.for_each(|(_, is_matched)| *is_matched = true);
        let measures = before.measured(&then.vm).zip(now.measured(&vm.vm));
        both.push(Compared {
            before: then,
            now: vm,
            findings: (then.is_judged() && vm.is_judged()).then(|| findings(then, vm)),
            values: measures.map_or_else(Vec::new, |(then, now)| values(then, now)),
            pcpus: measures.and_then(|(then, now)| pcpus(&then.pcpus, &now.pcpus)),
        });
    }
    let pairs = before.vms().iter().zip(is_matched);
    Comparison {
        both,
        only_before: pairs.filter(|(_, is)| !is).map(|(vm, _)| vm).collect(),
        only_now,
    }
}

fn findings<'a>(before: &'a PastVm, now: &'a PastVm) -> Vec<FindingChange<'a>> {
    let same = |vm: &'a PastVm, one: &Found| {
        let mut found = vm.found.iter();
        found.find(|other| other.finding.check == one.finding.check)
    };
    let of_now = now.found.iter().map(|now| match same(before, now) {
        Some(before) => FindingChange::Remained { before, now },
        None => FindingChange::Appeared(now),
    });
    let of_before = before.found.iter();
    let ended = of_before.filter(|before| same(now, before).is_none());
    let mut all: Vec<_> = of_now.chain(ended.map(FindingChange::Ended)).collect();
    all.sort_by(|a, b| a.last().finding.by_rank(&b.last().finding));
    all
}

impl<'a> FindingChange<'a> {
    /// The finding in the judged window, else in the window of comparison.
    pub fn last(&self) -> &'a Found {
        match self {
            Self::Appeared(found) | Self::Ended(found) | Self::Remained { now: found, .. } => found,
        }
    }
}

fn values(before: &Measured, now: &Measured) -> Vec<ValueChange> {
    let changes = Measure::ALL.into_iter().filter_map(|measure| {
        let (before, now) = (before.of(measure)?, now.of(measure)?);
        let (low, high) = (before.min(now), before.max(now));
        let least = least(measure);
        let is_large = measure.is_setting() || high - low >= low * LEAST_PART;
        (high - low >= least && is_large).then(|| ValueChange {
            measure,
            before,
            now,
            ratio: high.max(least) / low.max(least),
        })
    });
    let mut changes: Vec<_> = changes.collect();
    changes.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    changes
}

/// Both sets, if less than half of their CPUs are in both.
fn pcpus(before: &CpuSet, now: &CpuSet) -> Option<[CpuSet; 2]> {
    let common = before.intersection(now).len();
    let all = before.len() + now.len() - common;
    let are_known = !before.is_empty() && !now.is_empty();
    (are_known && common * 2 < all).then(|| [before.clone(), now.clone()])
}

#[cfg(test)]
mod tests;

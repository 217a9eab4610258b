//! Adds values from readings to the events: gauges, and differences between two readings.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_model::snapshot::{Quota, Snapshot, Vm};
use virtlens_model::timeline::{Counter, Piece};
use virtlens_model::vocab::{CgroupId, DiscardSum};

use super::text::bytes;

/// The readings of one VM.
pub(super) struct Counters {
    vm: Arc<str>,
    /// Ids of the cgroups, by path.
    quotas: FxHashMap<String, CgroupId>,
    last: Option<(u64, Vm)>,
}

impl Counters {
    pub(super) fn new(
        first: &Snapshot,
        vm: &Arc<str>,
        quotas: FxHashMap<String, CgroupId>,
    ) -> Self {
        let found = first.vms.iter().find(|one| one.vm == *vm);
        Self {
            vm: Arc::clone(vm),
            quotas,
            last: found.map(|vm| (first.clock_ns, vm.clone())),
        }
    }

    /// Adds the values of a reading at `time_ns` to the timeline. Returns false if the VM
    /// no longer runs.
    pub(super) fn add(&mut self, snapshot: &Snapshot, time_ns: u64, out: &mut Vec<Piece>) -> bool {
        let Some(vm) = snapshot.vms.iter().find(|one| one.vm == self.vm) else {
            // After failed readings the state of the VM is unknown.
            return !snapshot.knows_vms();
        };
        let mut count = |counter, value| {
            out.push(Piece::Count {
                time_ns,
                counter,
                value,
            });
        };
        if let Some(resident) = vm.memory.resident_bytes {
            count(Counter::Resident, float(resident));
        }
        if let Some((then_ns, then)) = &self.last
            && snapshot.clock_ns > *then_ns
        {
            let elapsed_ns = snapshot.clock_ns - then_ns;
            for quota in &vm.quota {
                let before = then.quota.iter().find(|one| one.cgroup == quota.cgroup);
                if let (Some(id), Some(before)) = (self.quotas.get(&*quota.cgroup), before)
                    && quota.cores.is_some()
                {
                    let used_ns = used_ns(quota).saturating_sub(used_ns(before));
                    count(Counter::QuotaUsed(*id), float(used_ns) / float(elapsed_ns));
                }
            }
            notes(then, vm, |text| out.push(Piece::Note { time_ns, text }));
        }
        self.last = Some((snapshot.clock_ns, vm.clone()));
        vm.running
    }
}

/// Reports memory that the VM returned between two readings or used again.
fn notes(before: &Vm, after: &Vm, mut emit: impl FnMut(String)) {
    let (Some(before), Some(after)) = (before.memory.discards, after.memory.discards) else {
        return;
    };
    let kinds = [
        ("inflate", before.inflate, after.inflate),
        ("deflate", before.deflate, after.deflate),
        ("free page report", before.report, after.report),
        ("other discard", before.other, after.other),
    ];
    for (name, before, after) in kinds {
        if after.events > before.events {
            emit(note(name, before, after));
        }
    }
}

fn note(name: &str, before: DiscardSum, after: DiscardSum) -> String {
    let events = after.events.saturating_sub(before.events);
    let size = bytes(after.bytes.saturating_sub(before.bytes));
    let ms = float(after.ns.saturating_sub(before.ns)) / 1e6;
    format!("{name}: {size} in {events} events, {ms:.2} ms")
}

fn used_ns(quota: &Quota) -> u64 {
    let used = quota.used_ns.values();
    used.fold(0, |sum, ns| sum.saturating_add(*ns))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a displayed number has few digits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

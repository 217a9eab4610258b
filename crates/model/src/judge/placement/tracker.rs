//! Since when, and for how much run time, a VM has been out of place.

use std::collections::HashMap;

use crate::judge::placement::types::{Judgement, VmPlacement};
use crate::snapshot::Mismatch;
use crate::vocab::MismatchKind;

/// What is wrong with one VM, over time. To be kept beside the VM's counters,
/// and to end with them; it holds no more than the last judgement did.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    /// By kind and vCPUs: the clock when it was first seen.
    since_ns: HashMap<(MismatchKind, Vec<u32>), u64>,
    misplaced_ns: [u64; MismatchKind::ALL.len()],
}

impl Tracker {
    /// Takes up the next judgement, made of `vm` at `now_ns`, on any clock
    /// that does not go back. The run time of the window that was judged is
    /// counted for what is wrong in it, each vCPU's once a kind.
    pub fn update(&mut self, now_ns: u64, vm: &VmPlacement, judged: &Judgement) {
        let mut before = std::mem::take(&mut self.since_ns);
        for mismatch in &judged.mismatches {
            let key = key(mismatch);
            let since = before.remove(&key).unwrap_or(now_ns);
            // Two findings of one kind and the same vCPUs began with the first.
            self.since_ns.entry(key).or_insert(since);
        }
        if judged.mismatches.is_empty() {
            return;
        }
        let run_ns: HashMap<u32, u64> =
            vm.vcpus.iter().map(|vcpu| (vcpu.id, vcpu.cpu_ns)).collect();
        for (kind, sum) in MismatchKind::ALL.iter().zip(&mut self.misplaced_ns) {
            let of_kind = judged.mismatches.iter().filter(|found| found.kind == *kind);
            let mut vcpus: Vec<u32> = of_kind.flat_map(|found| &found.vcpus).copied().collect();
            vcpus.sort_unstable();
            vcpus.dedup();
            let ran = vcpus.iter().filter_map(|id| run_ns.get(id));
            *sum = ran.fold(*sum, |sum, ns| sum.saturating_add(*ns));
        }
    }

    /// When something that the last judgement found was first found, on the
    /// clock of [`Tracker::update`]; since then every judgement found it.
    pub fn since_ns(&self, mismatch: &Mismatch) -> Option<u64> {
        self.since_ns.get(&key(mismatch)).copied()
    }

    /// CPU time that vCPUs used while out of place, by kind, ns; every kind,
    /// in the order of [`MismatchKind::ALL`]. Never falls. A vCPU counts with
    /// each kind that it suffers from, so kinds do not add up.
    pub fn misplaced_ns(&self) -> impl Iterator<Item = (MismatchKind, u64)> {
        MismatchKind::ALL.into_iter().zip(self.misplaced_ns)
    }
}

fn key(mismatch: &Mismatch) -> (MismatchKind, Vec<u32>) {
    (mismatch.kind, mismatch.vcpus.clone())
}

//! Start and accumulated run time of a VM's mismatches.

use std::collections::HashMap;

use crate::judge::placement::types::{Judgement, VmPlacement};
use crate::snapshot::Mismatch;
use crate::vocab::MismatchKind;

/// Mismatches of one VM over time. Keep it as long as the VM's counters. Its size is
/// bounded by the last judgement.
#[derive(Debug, Clone, Default)]
pub struct Tracker {
    /// Time when it was first seen, by kind and vCPUs.
    since_ns: HashMap<(MismatchKind, Vec<u32>), u64>,
    misplaced_ns: [u64; MismatchKind::ALL.len()],
}

impl Tracker {
    /// Adds the next judgement, made of `vm` at `now_ns` on a monotonic clock. The run
    /// time in the judged window is counted for each mismatch; each vCPU counts once per
    /// kind.
    pub fn update(&mut self, now_ns: u64, vm: &VmPlacement, judged: &Judgement) {
        let mut before = std::mem::take(&mut self.since_ns);
        for mismatch in &judged.mismatches {
            let key = key(mismatch);
            let since = before.remove(&key).unwrap_or(now_ns);
            // Two mismatches of one kind with the same vCPUs share the earlier start.
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

    /// Time when a mismatch of the last judgement was first found, on the clock of
    /// [`Tracker::update`]; every judgement since then found it too.
    pub fn since_ns(&self, mismatch: &Mismatch) -> Option<u64> {
        self.since_ns.get(&key(mismatch)).copied()
    }

    /// CPU time of affected vCPUs by kind, ns; every kind, in the order of
    /// [`MismatchKind::ALL`]. Never decreases. A vCPU counts for each kind that affects
    /// it, so the kinds must not be summed.
    pub fn misplaced_ns(&self) -> impl Iterator<Item = (MismatchKind, u64)> {
        MismatchKind::ALL.into_iter().zip(self.misplaced_ns)
    }
}

fn key(mismatch: &Mismatch) -> (MismatchKind, Vec<u32>) {
    (mismatch.kind, mismatch.vcpus.clone())
}

//! Findings of all VMs of a host, kept from one judgement to the next.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::rules::judge;
use crate::judge::interval::{Interval, is_same};
use crate::snapshot::{Findings, Snapshot, Vm};

/// The last findings, and the baseline of the next.
#[derive(Debug, Default)]
pub struct Watch {
    bounds: Bounds,
    /// The reading with which the present window began.
    baseline: Option<Arc<Snapshot>>,
    /// By VM name, which is unique on the node, with the pid at that time.
    found: FxHashMap<Arc<str>, (u32, Findings)>,
}

impl Watch {
    /// A watch without findings.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// The thresholds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Judges all VMs over the window that ends at `now_ns`, on the clock of
    /// [`Snapshot::clock_ns`]. New and ended VMs are not judged.
    pub fn judge(&mut self, vms: &[Vm], now_ns: u64) {
        let Some(before) = &self.baseline else {
            return;
        };
        let length_ns = now_ns.saturating_sub(before.clock_ns);
        let cgroup = before.node.cgroup;
        let none: Findings = Arc::from([]);
        let before: FxHashMap<&str, &Vm> = before.vms.iter().map(|vm| (&*vm.vm, vm)).collect();
        let running = vms.iter().filter(|vm| vm.running);
        let judged = running.filter_map(|vm| {
            let then = before.get(&*vm.vm).filter(|then| is_same(then, vm))?;
            let over = Interval::between(then, vm, length_ns);
            let found = judge(&over, &self.bounds, cgroup);
            let found = if found.is_empty() {
                Arc::clone(&none)
            } else {
                found.into()
            };
            Some((Arc::clone(&vm.vm), (vm.pid, found)))
        });
        self.found = judged.collect();
    }

    /// Starts a window with this reading.
    pub fn begin(&mut self, snapshot: &Arc<Snapshot>) {
        self.baseline = Some(Arc::clone(snapshot));
    }

    /// The last findings of a VM; `None` before its first judgement.
    pub fn findings(&self, vm: &Vm) -> Option<Findings> {
        let found = self.found.get(&vm.vm);
        let its = found.filter(|(pid, _)| vm.running && *pid == vm.pid);
        its.map(|(_, found)| Arc::clone(found))
    }
}

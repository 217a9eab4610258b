//! Which VM of a pod has the time of the pod's other processes.
//!
//! One VM has it as long as it runs; then the oldest of those that still run, which
//! counts on from where the one before it was. So the VMs of a pod together have what
//! its cgroup used, also while one that ended still shows its last values.

use std::cmp::Reverse;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::fleet::member::Member;
use crate::fleet::registry::Fleet;
use crate::vocab::{CgroupId, VmKey};

impl Member {
    /// The pod that its other processes are in. Where the path of its vCPUs names none, as
    /// that of an overhead cgroup, it is the last one.
    pub(super) fn watched_pod(&self) -> Option<CgroupId> {
        self.place.as_ref()?.root.or(self.ledger.pod)
    }

    /// The pods of which something may be kept for it.
    pub(super) fn pods(&self) -> impl Iterator<Item = CgroupId> + use<> {
        let root = self.place.as_ref().and_then(|place| place.root);
        let held = self.ledger.pod.filter(|pod| Some(*pod) != root);
        root.into_iter().chain(held)
    }

    /// The best of a pod has the time of the pod's other processes: one that runs, or
    /// else the one that ended last, as it is also forgotten last.
    fn pod_rank(&self, vm: VmKey, pod: CgroupId) -> impl Ord + use<> {
        let ended_ns = self.ended_ns;
        let has_it = self.ledger.pod == Some(pod);
        (ended_ns.is_some(), Reverse(ended_ns), !has_it, vm)
    }
}

impl Fleet {
    /// The VM that has the time of each pod's other processes.
    pub(super) fn pod_vms(&self) -> FxHashMap<CgroupId, VmKey> {
        let mut vms = FxHashMap::with_capacity_and_hasher(self.vms.len(), FxBuildHasher);
        let held = self.vms.iter();
        vms.extend(held.filter_map(|(vm, member)| Some((member.ledger.pod?, *vm))));
        vms
    }

    /// Gives each pod its VM, if VMs came, went, ended or moved.
    pub(super) fn assign_pods(&mut self) {
        if self.pods_as_of == Some(self.changes) {
            return;
        }
        self.pods_as_of = Some(self.changes);
        for member in self.vms.values_mut() {
            let root = member.place.as_ref().and_then(|place| place.root);
            // Where its path is not known for a moment it stays.
            if root.is_some() && member.ledger.pod.is_some_and(|pod| Some(pod) != root) {
                member.ledger.leave_pod();
            }
        }
        let holders = self.pod_vms();
        let mut best: FxHashMap<CgroupId, VmKey> = FxHashMap::default();
        for (vm, member) in &self.vms {
            let Some(root) = member.place.as_ref().and_then(|place| place.root) else {
                continue;
            };
            let known = best.entry(root).or_insert(*vm);
            if member.pod_rank(*vm, root) < self.vms[known].pod_rank(*known, root) {
                *known = *vm;
            }
        }
        for (pod, vm) in best {
            let holder = holders.get(&pod).copied();
            if holder != Some(vm) {
                self.hand_over(pod, holder, vm);
            }
        }
    }

    fn hand_over(&mut self, pod: CgroupId, from: Option<VmKey>, to: VmKey) {
        let former = from.and_then(|vm| self.vms.get_mut(&vm)).map(|member| {
            let ledger = member.ledger.clone();
            member.ledger.leave_pod();
            ledger
        });
        if let Some(member) = self.vms.get_mut(&to) {
            member.ledger.take_pod(pod, former.as_ref());
        }
    }
}

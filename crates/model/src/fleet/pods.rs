//! Selects the VM of a pod for which the pod's other processes are counted.
//!
//! One VM counts them as long as it runs. Then the oldest VM of the pod that still runs
//! takes over, starting at the values of the former one. The sum over the VMs of a pod is
//! therefore the usage of the pod's cgroup, even while an ended VM still shows its last
//! values.

use std::cmp::Reverse;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::fleet::member::Member;
use crate::fleet::registry::Fleet;
use crate::vocab::{CgroupId, VmKey};

impl Member {
    /// The pod of its other processes. If the path of its vCPUs names no pod, as that of
    /// an overhead cgroup, the last known pod.
    pub(super) fn watched_pod(&self) -> Option<CgroupId> {
        self.place.as_ref()?.root.or(self.ledger.pod)
    }

    /// The pods for which this VM may hold state.
    pub(super) fn pods(&self) -> impl Iterator<Item = CgroupId> + use<> {
        let root = self.place.as_ref().and_then(|place| place.root);
        let held = self.ledger.pod.filter(|pod| Some(*pod) != root);
        root.into_iter().chain(held)
    }

    /// Rank of a VM in its pod. The best VM counts the pod's other processes: a running
    /// VM, or else the VM that ended last, because it is also forgotten last.
    fn pod_rank(&self, vm: VmKey, pod: CgroupId) -> impl Ord + use<> {
        let ended_ns = self.ended_ns;
        let has_it = self.ledger.pod == Some(pod);
        (ended_ns.is_some(), Reverse(ended_ns), !has_it, vm)
    }
}

impl Fleet {
    /// For each pod the VM that counts the pod's other processes.
    pub(super) fn pod_vms(&self) -> FxHashMap<CgroupId, VmKey> {
        let mut vms = FxHashMap::with_capacity_and_hasher(self.vms.len(), FxBuildHasher);
        let held = self.vms.iter();
        vms.extend(held.filter_map(|(vm, member)| Some((member.ledger.pod?, *vm))));
        vms
    }

    /// Assigns a VM to each pod if VMs were added, removed, ended or moved.
    pub(super) fn assign_pods(&mut self) {
        if self.pods_as_of == Some(self.changes) {
            return;
        }
        self.pods_as_of = Some(self.changes);
        for member in self.vms.values_mut() {
            let root = member.place.as_ref().and_then(|place| place.root);
            // A VM whose path is briefly unknown keeps its pod.
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

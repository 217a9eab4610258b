//! Follows the VMs over cgroups: where their vCPUs are, and which cgroups hold their
//! threads.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::account::levels::Whole;
use crate::facts::{Facts, ThreadFact};
use crate::fleet::registry::Fleet;
use crate::identify::cgroup;
use crate::identify::place::{Place, by_id};
use crate::vocab::{CgroupId, Owner, VmKey};

impl Fleet {
    /// Detects VMs that moved to another cgroup, and the cgroups that hold their threads.
    /// `id_of` looks up a cgroup by its path. Call this after each reading, before
    /// [`Fleet::account`].
    pub fn follow(&mut self, facts: &Facts, id_of: impl Fn(&str) -> Option<CgroupId>) {
        self.follow_places(facts, id_of);
        self.follow_levels(facts);
    }

    fn follow_places(&mut self, facts: &Facts, id_of: impl Fn(&str) -> Option<CgroupId>) {
        let moved = self.moved(facts);
        // Usually no VM has moved, and no lookup is needed.
        if moved.is_empty() {
            return;
        }
        self.changes += moved.len() as u64;
        let cgroups = by_id(facts);
        for (vm, at) in moved {
            let member = self
                .vms
                .get_mut(&vm)
                .expect("a moved thread belongs to a member");
            let before = member.place.as_ref().map(|place| place.cgroup);
            member.ledger.changes += u64::from(before != Some(at));
            let sandbox_id = member.identity.sandbox_id.as_deref();
            member.place = Place::of(at, &cgroups, sandbox_id).or(member.place.take());
            let Some(place) = &mut member.place else {
                continue;
            };
            place.is_new = false;
            let sandbox_id = sandbox_id.or(place.location.sandbox_id.as_deref());
            let paths = cgroup::overhead_paths(sandbox_id.unwrap_or_default());
            member.overhead = paths.iter().filter_map(|path| id_of(path)).collect();
        }
    }

    fn follow_levels(&mut self, facts: &Facts) {
        self.assign_pods();
        let held = self.held(facts);
        let held = held.chunk_by(|(one, _), (next, _)| one == next);
        let is_new = |held: &&[(VmKey, CgroupId)]| {
            let member = self.vms.get(&held[0].0);
            let ids = held.iter().map(|(_, cgroup)| *cgroup);
            member.is_some_and(|member| !member.levels.are_held_by(ids))
        };
        let held: Vec<_> = held.filter(is_new).collect();
        // Usually all threads are in the same cgroups as before.
        if held.is_empty() {
            return;
        }
        let cgroups = by_id(facts);
        for held in held {
            let Some(member) = self.vms.get_mut(&held[0].0) else {
                continue;
            };
            let held: Vec<CgroupId> = held.iter().map(|(_, cgroup)| *cgroup).collect();
            let place = member.place.as_ref();
            let whole = Whole {
                root: place.and_then(|place| place.location.root.as_deref()),
                sandbox_id: member.identity.sandbox_id.as_deref(),
            };
            if member.levels.hold(&held, whole, &cgroups) {
                self.changes += 1;
            }
            let levels = &member.levels;
            member.ledger.forget_levels(|path| levels.has(path));
            member.ledger.changes += 1;
        }
    }

    /// Each VM with the cgroups that hold threads of it or of its pod, sorted.
    fn held(&self, facts: &Facts) -> Vec<(VmKey, CgroupId)> {
        let pods = self.pod_vms();
        let mut held = Vec::with_capacity(self.vms.len());
        held.extend(facts.threads.runs().filter_map(|run| {
            let vm = match run.owner {
                Owner::Vm(vm) => vm,
                Owner::Pod(pod) => *pods.get(&pod)?,
            };
            Some((vm, run.cgroup))
        }));
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Members whose vCPU threads are in another cgroup than before, with the new cgroup.
    fn moved(&self, facts: &Facts) -> Vec<(VmKey, CgroupId)> {
        let has_moved = |vm: &VmKey, thread: &ThreadFact| {
            self.vms.get(vm).is_some_and(|member| {
                let place = member.place.as_ref();
                place.is_none_or(|place| place.cgroup != thread.cgroup || place.is_new)
            })
        };
        // The first vCPU thread of each run, or else its first thread.
        let first = facts.threads.runs().filter_map(|run| match run.owner {
            Owner::Vm(vm) => Some((vm, run.first_vcpu.unwrap_or(&run.threads[0]))),
            Owner::Pod(_) => None,
        });
        let odd = first.clone().filter(|(vm, thread)| has_moved(vm, thread));
        let odd: FxHashSet<VmKey> = odd.map(|(vm, _)| vm).collect();
        if odd.is_empty() {
            return Vec::new();
        }
        let mut at: FxHashMap<VmKey, &ThreadFact> = FxHashMap::default();
        for (vm, thread) in first.filter(|(vm, _)| odd.contains(vm)) {
            let best = at.entry(vm).or_insert(thread);
            if best.vcpu.is_none() && thread.vcpu.is_some() {
                *best = thread;
            }
        }
        at.into_iter()
            .filter(|(vm, thread)| has_moved(vm, thread))
            .map(|(vm, thread)| (vm, thread.cgroup))
            .collect()
    }
}

//! Which VMs there are, what belongs to each, and what they used.
//!
//! ```text
//!            first seen            all its threads gone        linger over
//!   stranger ──────────► running ───────────────────► ended ──────────────► forgotten
//!                           ▲                           │
//!                           └── a VM of the same name ◄─┘  (its counters go on)
//! ```
//!
//! Totals are what the kernel says of living and ended threads together, so
//! a reading needs none before it; see [`crate::ledger`] for what is kept.

mod naming;
mod recall;
mod threads;

pub use self::recall::Kept;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::{CgroupId, Facts, Owner, ProcessFact, ThreadFact, VmKey, WatchedCgroup};
use crate::features::Features;
use crate::ledger::Ledger;
use crate::place::{Cgroups, Place, ancestors};
use crate::pod::{Pod, Pods};
use crate::snapshot::{Quota, Vm};
use crate::vmm::{self, Identity};
use crate::{cgroup, features};

/// The VMs of a host.
#[derive(Debug)]
pub struct Fleet {
    linger_ns: u64,
    vms: FxHashMap<VmKey, Member>,
    /// VMs whose counters others carry on, since the last reading.
    succeeded: Vec<VmKey>,
    /// How often VMs came, went or moved.
    changes: u64,
    /// The node's pods, as last told.
    pods: Arc<Pods>,
    /// VMs that an agent before this one knew and that still run, until they are
    /// admitted.
    recalled: FxHashMap<VmKey, Kept>,
}

/// One VM.
#[derive(Debug)]
pub struct Member {
    /// What its process is.
    pub identity: Identity,
    /// Its name on this node.
    pub name: Arc<str>,
    /// Where its vCPU threads sit.
    pub place: Option<Place>,
    /// Overhead cgroups of its sandbox.
    pub overhead: Vec<CgroupId>,
    /// Its bandwidth control as last seen: it ends before the VM's last values.
    pub quota: Vec<Quota>,
    /// The tightest level of each scope, likewise.
    pub limits: Vec<Quota>,
    /// Its counters.
    pub ledger: Ledger,
    /// When it was first missing, ns on the clock of [`Fleet::account`].
    pub ended_ns: Option<u64>,
    /// What it has to give memory back, as its arguments tell.
    pub features: Features,
    /// What Kubernetes told of its pod; it stays when the pod is gone, as the VM's last
    /// values do.
    pub pod: Option<Pod>,
    /// The changes of its ledger that the next agent will find; `None` before the
    /// first time.
    saved: Option<u64>,
}

impl Member {
    /// The order in which VMs are shown: by their pod's uid, then by name.
    fn rank(&self) -> (Option<&str>, &str) {
        let place = self.place.as_ref();
        let uid = place.and_then(|place| place.location.uid.as_deref());
        (uid, &self.name)
    }

    /// Its cgroups that can have a limit.
    pub fn levels(&self) -> impl Iterator<Item = CgroupId> + '_ {
        let place = self.place.iter().flat_map(|place| &place.levels);
        let overhead = self.overhead.iter().copied();
        place.map(|(id, _)| *id).chain(overhead)
    }

    /// The first of its levels from `cgroup` upwards.
    pub fn level_of(&self, cgroup: CgroupId, cgroups: &Cgroups<'_>) -> Option<CgroupId> {
        let is_level = |id: &CgroupId| self.levels().any(|level| level == *id);
        let above = || ancestors(cgroup, cgroups).map(|fact| fact.id);
        Some(cgroup)
            .filter(is_level)
            .or_else(|| above().find(is_level))
    }
}

impl Fleet {
    /// `linger_ns`: how long a VM that ended keeps its last values.
    pub fn new(linger_ns: u64) -> Self {
        Self {
            linger_ns,
            vms: FxHashMap::default(),
            succeeded: Vec::new(),
            changes: 0,
            pods: Arc::default(),
            recalled: FxHashMap::default(),
        }
    }

    /// Tells what Kubernetes calls the node's pods, from the next
    /// [`Fleet::account`] on.
    pub fn call(&mut self, pods: Arc<Pods>) {
        self.pods = pods;
    }

    /// VMs in `facts` that are not known yet: [`Fleet::admit`] them before
    /// [`Fleet::account`].
    pub fn strangers(&self, facts: &Facts) -> FxHashSet<VmKey> {
        vms_of(facts)
            .filter(|vm| !self.vms.contains_key(vm))
            .collect()
    }

    /// Takes up a VM. `process` is what its process said of itself.
    pub fn admit(&mut self, vm: VmKey, process: &ProcessFact, facts: &Facts) {
        let cgroups = by_id(facts);
        let place = place_of(vm, facts, &cgroups);
        self.changes += 1;
        let identity = vmm::identify(process);
        let args = process.args.get(1..).unwrap_or_default();
        let features = features::of_arguments(identity.vmm, args);
        let wanted = naming::wanted(&identity, place.as_ref(), process, vm);
        let uid = place
            .as_ref()
            .and_then(|place| place.location.uid.as_deref());
        let known = self.recalled.remove(&vm);
        let saved = known
            .as_ref()
            .and_then(|kept| kept.saved_at(place.as_ref()));
        let (name, ledger) = if let Some(kept) = known {
            kept.taken_up()
        } else if let Some(former) = self.predecessor(&wanted, uid, facts) {
            self.take_over(former, facts)
        } else {
            (self.free_name(wanted, vm).into(), Ledger::default())
        };
        self.vms.insert(
            vm,
            Member {
                identity,
                name,
                place,
                overhead: Vec::new(),
                quota: Vec::new(),
                limits: Vec::new(),
                ledger,
                ended_ns: None,
                features,
                pod: None,
                saved,
            },
        );
    }

    /// Name and counters of a VM that has ended, for the one that was started again.
    fn take_over(&mut self, former: VmKey, facts: &Facts) -> (Arc<str>, Ledger) {
        if self.vms[&former].ended_ns.is_none() {
            // It ended since the last reading.
            self.read_last(&[former], facts);
        }
        let mut former_member = self.vms.remove(&former).expect("it was just there");
        former_member.ledger.succeed();
        self.succeeded.push(former);
        (former_member.name, former_member.ledger)
    }

    /// Notes what VMs that have ended had used to their end.
    fn read_last(&mut self, ended: &[VmKey], facts: &Facts) {
        let cgroups = by_id(facts);
        let mut readings = self.readings(facts, &cgroups);
        for vm in ended {
            let reading = readings.remove(vm).unwrap_or_default();
            if let Some(member) = self.vms.get_mut(vm) {
                let ended_ns = member.ended_ns.take();
                reading.settle(*vm, member, &cgroups);
                member.ended_ns = ended_ns;
            }
        }
    }

    /// Which cgroups are to be read wholly: the pods of all VMs, and the
    /// overhead cgroups of their sandboxes. `id_of` looks a cgroup up by its
    /// path. To be called after each reading, before [`Fleet::account`]; where
    /// the answer changes, the reading is to be repeated.
    pub fn watched(
        &mut self,
        facts: &Facts,
        id_of: impl Fn(&str) -> Option<CgroupId>,
    ) -> FxHashSet<WatchedCgroup> {
        let moved = self.moved(facts);
        self.changes += moved.len() as u64;
        // Mostly nobody has moved, and then nobody asks for them.
        let cgroups = if moved.is_empty() {
            Cgroups::default()
        } else {
            by_id(facts)
        };
        for (vm, at) in moved {
            let member = self.vms.get_mut(&vm).expect("moved tells of members");
            let before = member.place.as_ref().map(|place| place.cgroup);
            member.ledger.changes += u64::from(before != Some(at));
            member.place = Place::of(at, &cgroups).or(member.place.take());
            let Some(place) = &mut member.place else {
                continue;
            };
            place.is_new = false;
            let sandbox = place.location.sandbox_id.as_deref().unwrap_or_default();
            let paths = cgroup::overhead_paths(sandbox);
            member.overhead = paths.iter().filter_map(|path| id_of(path)).collect();
        }
        self.vms
            .values()
            .filter_map(|member| Some((member, member.place.as_ref()?.watched()?)))
            .flat_map(|(member, root)| {
                let overhead = member.overhead.iter();
                let overhead = overhead.map(move |id| WatchedCgroup {
                    cgroup: *id,
                    pod: root.pod,
                });
                overhead.chain([root])
            })
            .collect()
    }

    /// A number that changes whenever [`Fleet::levels`] may.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The cgroups of all VMs that can have a limit.
    pub fn levels(&self) -> FxHashSet<CgroupId> {
        self.vms.values().flat_map(Member::levels).collect()
    }

    /// All whose threads are somebody's: the VMs, and their pods.
    pub fn owners(&self) -> FxHashSet<Owner> {
        let pod = |member: &Member| Some(Owner::Pod(member.place.as_ref()?.root?));
        let owners = |(vm, member): (&VmKey, _)| [Some(Owner::Vm(*vm)), pod(member)];
        self.vms.iter().flat_map(owners).flatten().collect()
    }

    /// A VM that is known.
    pub(crate) fn member(&self, vm: VmKey) -> Option<&Member> {
        self.vms.get(&vm)
    }

    /// Accounts one reading taken at `now_ns` on a clock that never falls.
    /// Returns the VMs, and the owners that are gone for good.
    pub fn account(&mut self, facts: &Facts, now_ns: u64) -> (Vec<Vm>, FxHashSet<Owner>) {
        let alive: FxHashSet<VmKey> = vms_of(facts).collect();
        for (vm, member) in &mut self.vms {
            member.ended_ns = if alive.contains(vm) {
                None
            } else {
                member.ended_ns.or(Some(now_ns))
            };
        }
        let mut gone = self.forget(now_ns);
        gone.extend(self.succeeded.drain(..).map(Owner::Vm));
        let cgroups = by_id(facts);
        let mut readings = self.readings(facts, &cgroups);
        let mut members: Vec<(&VmKey, &mut Member)> = self.vms.iter_mut().collect();
        for (_, member) in &mut members {
            member.learn_pod(&self.pods);
        }
        // Before they are settled: a VM is much larger than its key.
        members.sort_unstable_by(|(_, a), (_, b)| a.rank().cmp(&b.rank()));
        let vms = members
            .into_iter()
            .map(|(vm, member)| {
                let reading = readings.remove(vm).unwrap_or_default();
                reading.settle(*vm, member, &cgroups)
            })
            .collect();
        (vms, gone)
    }

    /// Whose the other processes of each pod are: the VM that runs; of several
    /// the oldest.
    fn pods(&self) -> FxHashMap<CgroupId, VmKey> {
        let mut pods: FxHashMap<CgroupId, VmKey> = FxHashMap::default();
        let rank = |vm: &VmKey| (self.vms[vm].ended_ns.is_some(), *vm);
        for (vm, member) in &self.vms {
            if let Some(root) = member.place.as_ref().and_then(|place| place.root) {
                let best = pods.entry(root).or_insert(*vm);
                if rank(vm) < rank(best) {
                    *best = *vm;
                }
            }
        }
        pods
    }

    /// Drops the VMs whose time is over; returns what they owned, as far as no
    /// other VM owns it.
    fn forget(&mut self, now_ns: u64) -> FxHashSet<Owner> {
        let linger_ns = self.linger_ns;
        let over = |member: &Member| {
            member
                .ended_ns
                .is_some_and(|ended| now_ns.saturating_sub(ended) > linger_ns)
        };
        let gone: Vec<(VmKey, Option<CgroupId>)> = self
            .vms
            .iter()
            .filter(|(_, member)| over(member))
            .map(|(vm, member)| (*vm, member.place.as_ref().and_then(|place| place.root)))
            .collect();
        self.changes += gone.len() as u64;
        for (vm, _) in &gone {
            self.vms.remove(vm);
        }
        let pods = self.pods();
        gone.into_iter()
            .flat_map(|(vm, root)| {
                let pod = root.filter(|root| !pods.contains_key(root)).map(Owner::Pod);
                pod.into_iter().chain([Owner::Vm(vm)])
            })
            .collect()
    }

    /// Members whose vCPU threads sit elsewhere than before, and where.
    fn moved(&self, facts: &Facts) -> Vec<(VmKey, CgroupId)> {
        let mut at: FxHashMap<VmKey, &ThreadFact> = FxHashMap::default();
        for run in facts.runs() {
            if let Owner::Vm(vm) = run[0].owner {
                let thread = run
                    .iter()
                    .find(|thread| thread.vcpu.is_some())
                    .unwrap_or(&run[0]);
                let best = at.entry(vm).or_insert(thread);
                if best.vcpu.is_none() && thread.vcpu.is_some() {
                    *best = thread;
                }
            }
        }
        let place_of = |vm: &VmKey| self.vms.get(vm).map(|member| member.place.as_ref());
        at.into_iter()
            .filter(|(vm, thread)| {
                place_of(vm).is_some_and(|place| {
                    place.is_none_or(|place| place.cgroup != thread.cgroup || place.is_new)
                })
            })
            .map(|(vm, thread)| (vm, thread.cgroup))
            .collect()
    }
}

fn by_id(facts: &Facts) -> Cgroups<'_> {
    facts.cgroups.iter().map(|fact| (fact.id, fact)).collect()
}

/// The VMs that have threads; one may come more than once.
fn vms_of(facts: &Facts) -> impl Iterator<Item = VmKey> + '_ {
    facts.runs().filter_map(|run| match run[0].owner {
        Owner::Vm(vm) => Some(vm),
        Owner::Pod(_) => None,
    })
}

/// Where most of a VM's vCPUs sit; of a VM without any, its threads.
fn place_of(vm: VmKey, facts: &Facts, cgroups: &Cgroups<'_>) -> Option<Place> {
    let own = || {
        facts
            .threads
            .iter()
            .filter(|thread| thread.owner == Owner::Vm(vm))
    };
    let thread = own()
        .find(|thread| thread.vcpu.is_some())
        .or_else(|| own().next())?;
    Place::of(thread.cgroup, cgroups)
}

#[cfg(test)]
mod tests;

//! The VMs of a host: admitted, tracked, accounted, forgotten.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::account::allowed::Allowed;
use crate::account::ledger::Ledger;
use crate::account::level_moves::LastCharged;
use crate::account::levels::Levels;
use crate::facts::{Facts, ProcessFact, WatchedCgroup};
use crate::fleet::buffers::Former;
use crate::fleet::kept::Kept;
use crate::fleet::member::Member;
use crate::identify::features::Thresholds;
use crate::identify::name;
use crate::identify::place::by_id;
use crate::identify::place::{Cgroups, Place};
use crate::identify::{features, vmm};
use crate::snapshot::Vm;
use crate::vocab::topology::host::HostTopology;
use crate::vocab::{CgroupId, Owner, Pods, VmKey};

/// The VMs of a host.
#[derive(Debug)]
pub struct Fleet {
    pub(super) linger_ns: u64,
    pub(super) vms: FxHashMap<VmKey, Member>,
    /// The VMs in display order, and the value of `changes` for which it is valid.
    pub(super) order: (Option<u64>, Vec<VmKey>),
    /// The CPUs of the host.
    pub(super) host: Arc<HostTopology>,
    /// A former reading, whose memory the next one reuses.
    pub(super) former: Former,
    /// VMs whose counters others took over since the last reading.
    pub(super) succeeded: Vec<VmKey>,
    /// Number of times that VMs were added, removed, ended or moved.
    pub(super) changes: u64,
    /// The value of `changes` for which the assignment of pods to VMs is valid.
    pub(super) pods_as_of: Option<u64>,
    /// The node's pods, as last reported.
    pub(super) pods: Arc<Pods>,
    /// VMs of a previous agent that still run, until they are admitted.
    pub(super) recalled: FxHashMap<VmKey, Kept>,
}

impl Fleet {
    /// `linger_ns`: how long an ended VM keeps its last values.
    pub fn new(linger_ns: u64) -> Self {
        Self {
            linger_ns,
            vms: FxHashMap::default(),
            order: (None, Vec::new()),
            host: Arc::default(),
            former: Former::default(),
            succeeded: Vec::new(),
            changes: 0,
            pods_as_of: None,
            pods: Arc::default(),
            recalled: FxHashMap::default(),
        }
    }

    /// Sets the CPUs of the host. Takes effect at the next [`Fleet::account`].
    pub fn set_host(&mut self, host: Arc<HostTopology>) {
        self.host = host;
    }

    /// Sets the node's pods as Kubernetes reports them. Takes effect at the next
    /// [`Fleet::account`].
    pub fn call(&mut self, pods: Arc<Pods>) {
        self.pods = pods;
    }

    /// Unknown VMs in `facts`, oldest first. Pass them to [`Fleet::admit`] in this order
    /// before [`Fleet::account`]: of two VMs with one name the first keeps the plain
    /// name.
    pub fn unknown_vms(&self, facts: &Facts) -> Vec<VmKey> {
        let unknown = facts.held().filter(|vm| !self.vms.contains_key(vm));
        let mut unknown: Vec<VmKey> = unknown.collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Adds a VM. `process` describes its VMM process.
    pub fn admit(&mut self, vm: VmKey, process: &ProcessFact, facts: &Facts) {
        let cgroups = by_id(facts);
        let identity = vmm::identify(process);
        let place = place_of(vm, facts, &cgroups, identity.sandbox_id.as_deref());
        self.changes += 1;
        let args = process.args.get(1..).unwrap_or_default();
        let features = features::of_arguments(identity.vmm, args);
        let wanted = name::wanted(&identity, place.as_ref(), process, vm);
        let uid = place
            .as_ref()
            .and_then(|place| place.location.uid.as_deref());
        let known = self.recalled.remove(&vm);
        let saved = known
            .as_ref()
            .and_then(|kept| kept.saved_at(place.as_ref()));
        let (name, levels, ledger) = if let Some(kept) = known {
            kept.taken_up()
        } else if let Some(former) = self.predecessor(&wanted, uid, facts) {
            self.take_over(former, facts)
        } else {
            let name = self.free_name(wanted, vm).into();
            (name, Levels::default(), Ledger::default())
        };
        self.vms.insert(
            vm,
            Member {
                identity,
                name,
                place,
                overhead: Vec::new(),
                levels,
                limits: Vec::new(),
                allowed: Allowed::default(),
                ledger,
                charged: LastCharged::default(),
                ended_ns: None,
                features,
                pod: None,
                saved,
            },
        );
    }

    /// Takes the name, levels and counters of an ended VM for its restarted successor.
    pub(super) fn take_over(&mut self, former: VmKey, facts: &Facts) -> (Arc<str>, Levels, Ledger) {
        // The VM may have ended since the last reading. A VMM can outlive its VM.
        self.read_last(&[former], facts);
        let mut former_member = self.vms.remove(&former).expect("it was just there");
        former_member.ledger.succeed();
        self.succeeded.push(former);
        let Member {
            name,
            levels,
            ledger,
            ..
        } = former_member;
        (name, levels, ledger)
    }

    /// Reads the final values of ended VMs.
    pub(super) fn read_last(&mut self, ended: &[VmKey], facts: &Facts) {
        let mut ends = Vec::with_capacity(ended.len());
        for vm in ended {
            let member = self.vms.get_mut(vm);
            ends.push(member.and_then(|member| member.ended_ns.take()));
        }
        self.settle(ended, facts, &by_id(facts));
        for (vm, ended_ns) in ended.iter().zip(ends) {
            if let Some(member) = self.vms.get_mut(vm) {
                member.ended_ns = ended_ns;
            }
        }
    }

    /// A number that changes whenever [`Fleet::watched`] or [`Fleet::levels`] can change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The cgroups whose members must all be read: the pods of all VMs, and the overhead
    /// cgroups of their sandboxes. If this set changes, the reading must be repeated.
    pub fn watched(&self) -> FxHashSet<WatchedCgroup> {
        self.vms
            .values()
            .filter_map(|member| Some((member, member.watched_pod()?)))
            .flat_map(|(member, pod)| {
                let cgroups = member.overhead.iter().copied().chain([pod]);
                cgroups.map(move |cgroup| WatchedCgroup { cgroup, pod })
            })
            .collect()
    }

    /// The cgroups of all VMs that can have a limit.
    pub fn levels(&self) -> FxHashSet<CgroupId> {
        let levels = self.vms.values().flat_map(|member| member.levels.all());
        levels.map(|level| level.id).collect()
    }

    /// Whether there is no VM, neither a running one nor one that ended and is still shown.
    pub fn is_empty(&self) -> bool {
        self.vms.is_empty() && self.recalled.is_empty()
    }

    /// The owners of all threads to read: the VMs and their pods.
    pub fn owners(&self) -> FxHashSet<Owner> {
        let pods = |member: &Member| member.pods().map(Owner::Pod).collect::<Vec<_>>();
        let owners = |(vm, member): (&VmKey, _)| pods(member).into_iter().chain([Owner::Vm(*vm)]);
        self.vms.iter().flat_map(owners).collect()
    }

    /// VMs of which `facts` has counters, and that are neither known nor alive: they ended
    /// before a reading could admit them.
    pub fn missed(&self, facts: &Facts) -> FxHashSet<VmKey> {
        let retired = facts
            .retired
            .iter()
            .filter_map(|fact| match fact.class.owner {
                Owner::Vm(vm) => Some(vm),
                Owner::Pod(_) => None,
            });
        let counted = facts.placements.keys().copied().chain(retired);
        let is_known = |vm: &VmKey| self.vms.contains_key(vm) || self.recalled.contains_key(vm);
        let mut missed: FxHashSet<VmKey> = counted.filter(|vm| !is_known(vm)).collect();
        if !missed.is_empty() {
            facts.alive().for_each(|vm| {
                missed.remove(&vm);
            });
        }
        missed
    }

    /// The member of a known VM.
    pub(crate) fn member(&self, vm: VmKey) -> Option<&Member> {
        self.vms.get(&vm)
    }

    /// Thresholds that classify discards of a VM's RAM; `None` if the VM is unknown.
    pub fn thresholds(&self, vm: VmKey, huge_pages: bool) -> Option<Thresholds> {
        let member = self.member(vm)?;
        Some(Thresholds::of(&member.features, huge_pages))
    }

    /// Accounts one reading, taken at `now_ns` on a monotonic clock. Returns the VMs, and
    /// the owners that are gone for good.
    pub fn account(&mut self, facts: &Facts, now_ns: u64) -> (Vec<Vm>, FxHashSet<Owner>) {
        let mut held: Vec<VmKey> = facts.held().collect();
        held.sort_unstable();
        for (vm, member) in &mut self.vms {
            let is_alive = held.binary_search(vm).is_ok();
            self.changes += u64::from(is_alive == member.ended_ns.is_some());
            member.ended_ns = if is_alive {
                None
            } else {
                member.ended_ns.or(Some(now_ns))
            };
            member.learn_pod(&self.pods);
            let memory = facts.memory.get(vm);
            let is_logged = memory.and_then(|memory| memory.dirty_logging);
            let meter = &mut member.ledger.memory;
            meter.read_dirty_logging(is_logged, now_ns);
        }
        self.assign_pods();
        let mut gone = self.forget(now_ns);
        gone.extend(self.succeeded.drain(..).map(Owner::Vm));
        self.put_in_order();
        let (as_of, order) = std::mem::take(&mut self.order);
        let vms = self.settle(&order, facts, &by_id(facts));
        self.order = (as_of, order);
        (vms, gone)
    }

    /// Recycles the VMs of a former reading that are no longer needed: the next reading reuses
    /// their memory.
    pub fn recycle(&mut self, vms: Vec<Vm>) {
        self.former = Former::of(vms);
    }

    /// Sorts the VMs in display order, if the order may have changed.
    pub(super) fn put_in_order(&mut self) {
        if self.order.0 == Some(self.changes) {
            return;
        }
        let mut members: Vec<_> = self.vms.iter().collect();
        members.sort_unstable_by(|(_, a), (_, b)| a.rank().cmp(&b.rank()));
        let order = members.into_iter().map(|(vm, _)| *vm).collect();
        self.order = (Some(self.changes), order);
    }

    /// Drops the ended VMs whose linger time is over. Returns their owners, except those
    /// that another VM also has.
    pub(super) fn forget(&mut self, now_ns: u64) -> FxHashSet<Owner> {
        let linger_ns = self.linger_ns;
        let over = |member: &Member| {
            member
                .ended_ns
                .is_some_and(|ended| now_ns.saturating_sub(ended) > linger_ns)
        };
        let gone: Vec<(VmKey, Vec<CgroupId>)> = self
            .vms
            .iter()
            .filter(|(_, member)| over(member))
            .map(|(vm, member)| (*vm, member.pods().collect()))
            .collect();
        if gone.is_empty() {
            return FxHashSet::default();
        }
        self.changes += gone.len() as u64;
        for (vm, _) in &gone {
            self.vms.remove(vm);
        }
        let left: FxHashSet<CgroupId> = self.vms.values().flat_map(Member::pods).collect();
        gone.into_iter()
            .flat_map(|(vm, pods)| {
                let pods = pods.into_iter().filter(|pod| !left.contains(pod));
                let owners: Vec<Owner> = pods.map(Owner::Pod).collect();
                owners.into_iter().chain([Owner::Vm(vm)])
            })
            .collect()
    }
}

/// The cgroup of most vCPU threads of a VM; without vCPUs, of its threads.
fn place_of(
    vm: VmKey,
    facts: &Facts,
    cgroups: &Cgroups<'_>,
    sandbox_id: Option<&str>,
) -> Option<Place> {
    let own = || {
        facts
            .threads
            .iter()
            .filter(|thread| thread.owner == Owner::Vm(vm))
    };
    let thread = own()
        .find(|thread| thread.vcpu.is_some())
        .or_else(|| own().next())?;
    Place::of(thread.cgroup, cgroups, sandbox_id)
}

//! One reading of one VM: collects the facts about its threads.

use rustc_hash::FxHashMap;

use crate::account::charge::{Charges, PodSums};
use crate::account::level_moves::{Charged, LastCharged};
use crate::account::meter::Times;
use crate::account::sums::{SUMS, sum_index};
use crate::account::worker::WorkerId;
use crate::facts::{
    EndedVcpuFact, Facts, HaltsFact, HitFact, LevelFact, MemoryFact, ResidencyFact, RetiredFact,
    ThreadFact, ThreadKind, ThrottlingFacts, VmFact, VmPlacementFact,
};
use crate::fleet::ahead::Ahead;
use crate::fleet::buffers::Buffers;
use crate::fleet::member::Member;
use crate::fleet::vcpus::{Lacking, Vcpus};
use crate::identify::place::Cgroups;
use crate::snapshot::Thread;
use crate::vocab::{CgroupId, Owner, Role, ThreadKey, VhostDevice, VmKey};

/// Roles whose threads are shown individually.
pub(super) const WORKERS: [Role; 3] = [Role::Vhost, Role::Virtiofsd, Role::Iothread];

/// Facts about one VM in one reading.
#[derive(Debug, Default)]
pub(super) struct Reading<'a> {
    /// The VM in KVM, if the source reports it.
    pub(super) kvm: Option<&'a VmFact>,
    /// vCPUs that have run, according to the open files.
    pub(super) has_run: &'a [u32],
    /// Devices of the vhost workers, as far as they are known.
    vhost_devices: Option<&'a FxHashMap<ThreadKey, VhostDevice>>,
    /// Charges of the living threads.
    charged: LastCharged,
    /// The shown lists: living threads are added first, the others by
    /// [`Reading::settle`].
    pub(super) buffers: Buffers,
    /// Number of living threads, by [`sum_index`].
    pub(super) counts: [u32; SUMS],
    /// Number of living threads outside the cgroups of the VM's pod, by [`sum_index`].
    pub(super) outside_pod: [u32; SUMS],
    /// Number of outside threads that a runtime placed there.
    pub(super) split: u32,
    /// Times by [`sum_index`]: of the VMM process, and of the rest of its pod.
    pub(super) own: [Times; SUMS],
    pub(super) pod: [Times; SUMS],
    /// CPU time by the cgroup that can have a limit.
    pub(super) charges: Charges,
    /// Number of times that its threads were running when a quota ran out.
    pub(super) hits: PodSums,
    /// Observed throttling, if tracked.
    pub(super) throttling: Option<&'a ThrottlingFacts>,
    pub(super) vcpus: Vcpus<'a>,
    /// CPU time of the individually shown threads, in the order of [`WORKERS`].
    pub(super) workers: [Vec<(WorkerId, u64)>; WORKERS.len()],
    pub(super) lacking: Lacking,
    pub(super) guest_ns: u64,
    pub(super) guest_known: bool,
    /// Topology and moves.
    pub(super) placement: VmPlacementFact,
    /// Whether the reading contains the residency of vCPUs.
    pub(super) residency_known: bool,
    /// Further values of cgroups that can have a limit.
    pub(super) levels: Option<&'a FxHashMap<CgroupId, LevelFact>>,
    /// Its memory, if the reading contains it.
    pub(super) memory: Option<&'a MemoryFact>,
    /// The memory of the next VM.
    pub(super) ahead: Ahead<'a>,
}

/// The cgroup of a thread in relation to its VM.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadCgroup {
    /// Whether the cgroup is outside the VM's pod. False if the path is unknown.
    is_outside_pod: bool,
    /// The nearest level: the first cgroup, from the thread's own upwards, that can have
    /// a limit.
    level: Option<CgroupId>,
}

impl ThreadCgroup {
    /// For a thread of `member` or of its pod in `cgroup`.
    pub(super) fn of(cgroup: CgroupId, member: &Member, cgroups: &Cgroups<'_>) -> Self {
        let both = member.place.as_ref().zip(cgroups.get(&cgroup));
        Self {
            is_outside_pod: both
                .is_some_and(|(place, fact)| place.location.is_stray || !place.holds(fact)),
            level: member.levels.of(cgroup, cgroups),
        }
    }
}

impl<'a> Reading<'a> {
    /// An empty reading of `vm`. Takes the last charges of the member until
    /// [`Reading::follow_moves`] returns them.
    pub(super) fn begin(
        vm: VmKey,
        member: &mut Member,
        facts: &'a Facts,
        buffers: Buffers,
        ahead: Ahead<'a>,
    ) -> Self {
        let mut charged = std::mem::take(&mut member.charged);
        charged.begin(member.ledger.pod);
        Self {
            charged,
            buffers,
            vcpus: Vcpus(Vec::with_capacity(member.ledger.vcpus.len())),
            has_run: facts.has_run.get(&vm).map_or(&[], Vec::as_slice),
            vhost_devices: Some(&facts.vhost_devices),
            placement: facts.placements.get(&vm).copied().unwrap_or_default(),
            residency_known: facts.residency.is_some(),
            throttling: facts.throttling.as_ref(),
            levels: Some(&facts.levels),
            memory: facts.memory.get(&vm),
            ahead,
            ..Self::default()
        }
    }

    /// Adds a living thread.
    pub(super) fn living(&mut self, thread: &'a ThreadFact, role: Option<Role>, at: ThreadCgroup) {
        self.ahead.thread();
        let id = WorkerId {
            start_ns: thread.start_ns,
            tid: thread.tid,
            class_changes: thread.class_changes,
        };
        let device = self.device(role, id);
        self.buffers.threads.push(shown(thread, role, device));
        self.counts[sum_index(role)] += 1;
        let worker = WORKERS.iter().position(|of| role == Some(*of));
        if let Some(workers) = worker.map(|at| &mut self.workers[at]) {
            workers.push((id, thread.cpu_ns));
        }
        if at.is_outside_pod {
            self.outside_pod[sum_index(role)] += 1;
            // The timer of a VM (kvm-pit, a kernel thread) is always in the root cgroup,
            // independent of its VMM.
            let is_timer = thread.kind == ThreadKind::Kthread && role == Some(Role::Emulator);
            self.split += u32::from(!is_timer);
        }
        let level = at.level.filter(|_| thread.has_limits());
        self.charges.add(level, thread.owner, role, thread.cpu_ns);
        self.charges.count(level, thread.vcpu.is_some());
        let wait_ns = thread.wait_ns.unwrap_or(0);
        self.charged.charge(Charged {
            tid: thread.tid,
            start_ns: thread.start_ns,
            class_changes: thread.class_changes,
            is_own: matches!(thread.owner, Owner::Vm(_)),
            role,
            level,
            times: Times {
                cpu_ns: thread.cpu_ns,
                wait_ns,
            },
        });
        self.lacking.wait |= thread.wait_ns.is_none();
        self.lacking.switches |= thread.switches.is_none();
        self.sum(thread.owner, role).add(thread.cpu_ns, wait_ns);
        if let Some(vcpu) = &thread.vcpu {
            let sums = self.vcpus.of(vcpu.id);
            sums.times.add(thread.cpu_ns, wait_ns);
            let guest_ns = thread.guest_ns.unwrap_or(0);
            sums.guest_ns = sums.guest_ns.saturating_add(guest_ns);
            sums.switches.add(thread.switches);
            sums.living = Some((thread, vcpu));
            self.guest_ns = self.guest_ns.saturating_add(guest_ns);
            self.guest_known |= thread.guest_ns.is_some();
        }
    }

    /// The device of a thread, if it is a vhost worker and the device is known.
    pub(super) fn device(&self, role: Option<Role>, id: WorkerId) -> Option<VhostDevice> {
        let key = ThreadKey {
            start_ns: id.start_ns,
            tid: id.tid,
        };
        let is_vhost = role == Some(Role::Vhost);
        self.vhost_devices.filter(|_| is_vhost)?.get(&key).copied()
    }

    /// Adds ended threads.
    pub(super) fn retired(
        &mut self,
        retired: &RetiredFact,
        role: Option<Role>,
        level: Option<CgroupId>,
    ) {
        let owner = retired.class.owner;
        self.charges.add(level, owner, role, retired.cpu_ns);
        self.sum(owner, role).add(retired.cpu_ns, retired.wait_ns);
        if let Some(id) = retired.class.vcpu_id {
            let sums = self.vcpus.of(id);
            sums.has_ended = true;
            sums.times.add(retired.cpu_ns, retired.wait_ns);
            sums.guest_ns = sums.guest_ns.saturating_add(retired.guest_ns);
            sums.switches.add(Some(retired.switches));
            self.guest_ns = self.guest_ns.saturating_add(retired.guest_ns);
        }
    }

    /// Adds KVM's counters of a vCPU whose thread has ended.
    pub(super) fn ended_vcpu(&mut self, fact: &'a EndedVcpuFact) {
        let sums = self.vcpus.of(fact.id);
        sums.has_ended = true;
        sums.ended = Some(&fact.stats);
    }

    /// Adds the number of times that threads were running when a quota ran out.
    pub(super) fn hit(&mut self, hit: &HitFact, role: Option<Role>) {
        self.hits.add(hit.class.owner, role, hit.hits);
    }

    /// Adds the CPU time of a vCPU on one pCPU.
    pub(super) fn residency(&mut self, fact: &ResidencyFact) {
        let sums = self.vcpus.of(fact.vcpu_id);
        let sum = sums.pcpus.entry(fact.pcpu).or_default();
        *sum = sum.saturating_add(fact.run_ns);
    }

    /// Adds histograms of the halts of a vCPU.
    pub(super) fn halts(&mut self, fact: &'a HaltsFact) {
        self.vcpus.of(fact.vcpu_id).halts = Some(fact);
    }

    /// Keeps the time of moved threads with the level that was charged for it. Call this
    /// once all threads are added.
    pub(super) fn follow_moves(&mut self, member: &mut Member) {
        let ledger = &mut member.ledger;
        member.charged = std::mem::take(&mut self.charged);
        let followed = member.charged.end(&mut ledger.level_moves);
        ledger.changes += u64::from(followed.has_moved);
        if let Some(brought) = followed.brought {
            ledger.skip_pod(&brought);
        }
        ledger.level_moves.apply(&mut self.charges);
    }

    fn sum(&mut self, owner: Owner, role: Option<Role>) -> &mut Times {
        let sums = if matches!(owner, Owner::Vm(_)) {
            &mut self.own
        } else {
            &mut self.pod
        };
        &mut sums[sum_index(role)]
    }
}

fn shown(fact: &ThreadFact, role: Option<Role>, device: Option<VhostDevice>) -> Thread {
    Thread {
        tid: fact.tid,
        role,
        name: fact.comm,
        device,
        cpu_ns: fact.cpu_ns,
        wait_ns: fact.wait_ns,
        pcpu: fact.pcpu,
        affinity: fact.affinity.clone(),
        sched_class: fact.sched_class,
    }
}

//! One reading of one VM: collects its threads and combines them with its ledger into the
//! shown values.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::account::charge::{Charges, PodSums};
use crate::account::ledger::Ledger;
use crate::account::level_moves::Charged;
use crate::account::meter::Times;
use crate::account::sums::{SUMS, sum_index};
use crate::account::worker::{WorkerId, Workers};
use crate::facts::{
    EndedVcpuFact, Facts, HitFact, MemoryFact, ResidencyFact, RetiredFact, ThreadFact, ThreadKind,
    ThrottlingFacts, VmPlacementFact,
};
use crate::fleet::member::Member;
use crate::fleet::room::{Room, fitting};
use crate::fleet::vcpus::{Vcpus, VcpusKnown};
use crate::fleet::{memory, quota};
use crate::identify::place::Cgroups;
use crate::snapshot::{RoleUse, Thread, Vcpu, VcpuCount, Vm, Worker};
use crate::vocab::{CgroupId, Owner, Role, ThreadKey, VhostDevice, VmKey};

/// Facts about one VM in one reading.
#[derive(Debug, Default)]
pub(super) struct Reading<'a> {
    /// vCPUs that KVM holds, if the source reports them.
    pub online_vcpus: Option<u32>,
    /// vCPUs that have run, according to the open files.
    has_run: &'a [u32],
    /// Devices of the vhost workers, as far as they are known.
    vhost_devices: Option<&'a FxHashMap<ThreadKey, VhostDevice>>,
    /// Charges of the living threads.
    pub charged: Vec<Charged>,
    /// Buffers for the remaining shown values.
    room: Room,
    /// Living threads.
    threads: Vec<Thread>,
    /// Number of living threads, by [`sum_index`].
    counts: [u32; SUMS],
    /// Number of living threads outside the cgroups of the VM's pod, by [`sum_index`].
    outside_pod: [u32; SUMS],
    /// Number of outside threads that a runtime placed there.
    split: u32,
    /// Times by [`sum_index`]: of the VMM process, and of the rest of its pod.
    own: [Times; SUMS],
    pod: [Times; SUMS],
    /// CPU time by the cgroup that can have a limit.
    charges: Charges,
    /// Number of times that its threads were running when a quota ran out.
    hits: PodSums,
    /// Observed throttling, if tracked.
    throttling: Option<&'a ThrottlingFacts>,
    vcpus: Vcpus<'a>,
    /// CPU time of the individually shown threads.
    workers: Vec<(Role, WorkerId, u64)>,
    /// At least one thread has no run delay.
    wait_unknown: bool,
    guest_ns: u64,
    guest_known: bool,
    /// Topology and moves.
    placement: VmPlacementFact,
    /// Whether the reading contains the residency of vCPUs.
    residency_known: bool,
    /// Its memory, if the reading contains it.
    memory: Option<&'a MemoryFact>,
}

/// Roles whose threads are shown individually.
const WORKERS: [Role; 3] = [Role::Vhost, Role::Virtiofsd, Role::Iothread];

/// The cgroup of a thread, and its consequences.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seat {
    /// The cgroup of the thread.
    pub cgroup: Option<CgroupId>,
    /// Whether the cgroup is outside the VM's pod. False if the path is unknown.
    pub is_outside_pod: bool,
    /// The nearest level: the first cgroup, from the thread's own upwards, that can have
    /// a limit.
    pub level: Option<CgroupId>,
}

impl Seat {
    /// For a thread of `member` or of its pod in `cgroup`.
    pub(super) fn of(cgroup: CgroupId, member: &Member, cgroups: &Cgroups<'_>) -> Self {
        let both = member.place.as_ref().zip(cgroups.get(&cgroup));
        Self {
            cgroup: Some(cgroup),
            is_outside_pod: both
                .is_some_and(|(place, fact)| place.location.is_stray || !place.holds(fact)),
            level: member.levels.of(cgroup, cgroups),
        }
    }
}

impl<'a> Reading<'a> {
    /// An empty reading of `vm`, with buffers for `count` living threads and `vcpus`
    /// vCPUs.
    pub(super) fn of(
        vm: VmKey,
        facts: &'a Facts,
        mut room: Room,
        count: usize,
        vcpus: usize,
    ) -> Self {
        Self {
            threads: fitting(&mut room.threads, count),
            room,
            vcpus: Vcpus(Vec::with_capacity(vcpus)),
            has_run: facts.has_run.get(&vm).map_or(&[], Vec::as_slice),
            vhost_devices: Some(&facts.vhost_devices),
            placement: facts.placements.get(&vm).copied().unwrap_or_default(),
            residency_known: facts.residency.is_some(),
            throttling: facts.throttling.as_ref(),
            memory: facts.memory.get(&vm),
            ..Self::default()
        }
    }

    /// Adds a living thread.
    pub(super) fn living(&mut self, thread: &'a ThreadFact, role: Option<Role>, seat: Seat) {
        let device = self.device(role, thread.start_ns, thread.tid);
        self.threads.push(shown(thread, role, device));
        self.counts[sum_index(role)] += 1;
        if let Some(role) = role.filter(|role| WORKERS.contains(role)) {
            let id = WorkerId {
                start_ns: thread.start_ns,
                tid: thread.tid,
                class_changes: thread.class_changes,
            };
            self.workers.push((role, id, thread.cpu_ns));
        }
        if seat.is_outside_pod {
            self.outside_pod[sum_index(role)] += 1;
            // The timer of a VM (kvm-pit, a kernel thread) is always in the root cgroup,
            // independent of its VMM.
            let is_timer = thread.kind == ThreadKind::Kthread && role == Some(Role::Emulator);
            self.split += u32::from(!is_timer);
        }
        self.charges
            .add(seat.level, thread.owner, role, thread.cpu_ns);
        self.charges.seat(seat.level, thread.vcpu.is_some());
        let wait_ns = thread.wait_ns.unwrap_or(0);
        self.charged.push(Charged {
            tid: thread.tid,
            start_ns: thread.start_ns,
            class_changes: thread.class_changes,
            is_own: matches!(thread.owner, Owner::Vm(_)),
            role,
            level: seat.level,
            times: Times {
                cpu_ns: thread.cpu_ns,
                wait_ns,
            },
        });
        self.wait_unknown |= thread.wait_ns.is_none();
        self.sum(thread.owner, role).add(thread.cpu_ns, wait_ns);
        if let Some(vcpu) = &thread.vcpu {
            let sums = self.vcpus.of(vcpu.id);
            sums.times.add(thread.cpu_ns, wait_ns);
            let guest_ns = thread.guest_ns.unwrap_or(0);
            sums.guest_ns = sums.guest_ns.saturating_add(guest_ns);
            sums.living = Some((thread, vcpu));
            self.guest_ns = self.guest_ns.saturating_add(guest_ns);
            self.guest_known |= thread.guest_ns.is_some();
        }
    }

    /// The device of a thread, if it is a vhost worker and the device is known.
    fn device(&self, role: Option<Role>, start_ns: u64, tid: u32) -> Option<VhostDevice> {
        let key = ThreadKey { start_ns, tid };
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
            self.guest_ns = self.guest_ns.saturating_add(retired.guest_ns);
        }
    }

    /// Adds KVM's counters of a vCPU whose thread has ended.
    pub(super) fn ended_vcpu(&mut self, fact: &'a EndedVcpuFact) {
        let sums = self.vcpus.of(fact.id);
        sums.has_ended = true;
        sums.ended = Some(&fact.stats);
    }

    /// Keeps the time of moved threads with the level that was charged for it.
    pub(super) fn follow_moves(&mut self, member: &mut Member) {
        let now = std::mem::take(&mut self.charged);
        let ledger = &mut member.ledger;
        let moves = &mut ledger.level_moves;
        let followed = member.charged.follow(now, ledger.pod, moves);
        ledger.changes += u64::from(followed.has_moved);
        if let Some(brought) = followed.brought {
            ledger.skip_pod(&brought);
        }
        ledger.level_moves.apply(&mut self.charges);
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

    pub(super) fn sum(&mut self, owner: Owner, role: Option<Role>) -> &mut Times {
        let sums = if matches!(owner, Owner::Vm(_)) {
            &mut self.own
        } else {
            &mut self.pod
        };
        &mut sums[sum_index(role)]
    }

    /// Combines the reading with the ledger into the shown VM.
    pub(super) fn settle(mut self, vm: VmKey, member: &mut Member, cgroups: &Cgroups<'_>) -> Vm {
        let layout = self.layout(member);
        let outside = self.outside_pod(member);
        let ledger = &mut member.ledger;
        let roles = self.roles(ledger, outside);
        let unattributed = ledger.roles[sum_index(None)]
            .read(self.own[sum_index(None)], self.pod[sum_index(None)]);
        let mut vcpus = self.settle_vcpus(ledger);
        let moves = ledger.moves(self.placement.moves);
        let guest = ledger.guest.read(self.guest_ns);
        let workers = self.workers(ledger);
        quota::read(member, cgroups, &self.charges, self.throttling);
        let (quota, limits) = quota::show(member);
        let memory = memory::read(member, self.memory, cgroups, &vcpus);
        self.seat_vcpus(&mut vcpus, member, cgroups);
        let place = member.place.as_ref();
        let location = place.map(|place| &place.location);
        Vm {
            namespace: member.pod.as_ref().map(|pod| Arc::clone(&pod.namespace)),
            pod: member.pod.as_ref().map(|pod| Arc::clone(&pod.name)),
            pod_spec: member.pod.as_ref().map(|pod| Arc::clone(&pod.spec)),
            uid: location.and_then(|location| location.uid.clone()),
            vm: Arc::clone(&member.name),
            vmm: member.identity.vmm.name(),
            runtime: member
                .identity
                .runtime
                .or(location.and_then(|location| location.runtime)),
            cgroup_layout: layout,
            pid: vm.tgid,
            cgroup: place.map(|place| Arc::clone(&place.path)),
            running: member.ended_ns.is_none(),
            roles,
            unattributed_cpu_ns: unattributed.cpu_ns,
            guest_ns: (self.guest_known || guest > 0).then_some(guest),
            vcpu_count: VcpuCount {
                boot: member.identity.boot_vcpus,
                online: self.online_vcpus,
                parked: self
                    .online_vcpus
                    .map(|_| count(self.vcpus.parked(self.has_run))),
                seen: count(
                    self.vcpus
                        .0
                        .iter()
                        .filter(|(_, sums)| sums.living.is_some())
                        .count(),
                ),
            },
            threads: self.threads,
            vcpus,
            workers,
            quota,
            limits,
            limit_cores: member.allowed.all,
            vcpu_limit_cores: member.allowed.vcpus,
            throttle_durations: member.ledger.throttle_durations(),
            unapplied_limit: None,
            guest_nodes: member.identity.guest_nodes,
            moves,
            topology: None,
            memory,
            findings: None,
        }
    }

    pub(super) fn roles(
        &mut self,
        ledger: &mut Ledger,
        outside: Option<[u32; SUMS]>,
    ) -> Vec<RoleUse> {
        let mut shown = fitting(&mut self.room.roles, Role::ALL.len());
        shown.extend(Role::ALL.into_iter().filter_map(|role| {
            let index = sum_index(Some(role));
            let times = ledger.roles[index].read(self.own[index], self.pod[index]);
            let there = self.counts[index] > 0 || times != Times::default();
            there.then_some(RoleUse {
                role,
                threads: self.counts[index],
                cpu_ns: times.cpu_ns,
                wait_ns: (!self.wait_unknown).then_some(times.wait_ns),
                outside_pod: outside.map(|outside| outside[index]),
                throttle_hits: self
                    .throttling
                    .map(|_| ledger.hits[index].read(self.hits.own[index], self.hits.pod[index])),
            })
        }));
        shown
    }

    pub(super) fn settle_vcpus(&mut self, ledger: &mut Ledger) -> Vec<Vcpu> {
        for (id, sums) in &mut self.vcpus.0 {
            let meter = ledger.vcpus.entry(*id).or_default();
            meter.cpu.read(sums.times.cpu_ns);
            meter.wait.read(sums.times.wait_ns);
            meter.guest.read(sums.guest_ns);
            if let Some(stats) = sums.ended {
                meter.read_ended(stats);
            }
            if let Some(stats) = sums.living.and_then(|(_, vcpu)| vcpu.stats.as_ref()) {
                ledger.changes += u64::from(meter.read_stats(stats));
            }
            if self.residency_known {
                sums.settle_pcpus();
                meter.read_pcpus(&sums.pcpus);
            }
        }
        let known = VcpusKnown {
            wait: !self.wait_unknown,
            guest_time: self.guest_known,
            topology: self.placement.guest,
            residency: self.residency_known,
        };
        let mut shown = fitting(&mut self.room.vcpus, ledger.vcpus.len());
        shown.extend(ledger.vcpus.iter().map(|(id, meter)| {
            let living = self.vcpus.get(*id).and_then(|sums| sums.living);
            crate::fleet::vcpus::shown(*id, meter, living, &known)
        }));
        shown
    }

    /// Sets the cgroup of each vCPU's thread: usually the VM's.
    pub(super) fn seat_vcpus(&self, shown: &mut [Vcpu], member: &Member, cgroups: &Cgroups<'_>) {
        let place = member.place.as_ref();
        for vcpu in shown {
            let living = self.vcpus.get(vcpu.id).and_then(|sums| sums.living);
            vcpu.cgroup = living.and_then(|(thread, _)| {
                if let Some(place) = place.filter(|place| place.cgroup == thread.cgroup) {
                    return Some(Arc::clone(&place.path));
                }
                Some(Arc::clone(&cgroups.get(&thread.cgroup)?.path))
            });
        }
    }

    pub(super) fn workers(&mut self, ledger: &mut Ledger) -> Vec<Worker> {
        let mut workers = Vec::new();
        self.workers.sort_unstable();
        for role in WORKERS {
            let of_role = self.workers.iter().filter(|(its, ..)| *its == role);
            let living: Vec<_> = of_role.map(|(_, id, cpu_ns)| (*id, *cpu_ns)).collect();
            if !living.is_empty() || ledger.workers.contains_key(&role) {
                ledger.workers(role, &living);
            }
            let slots = ledger.workers.get(&role).into_iter();
            let shown = slots.flat_map(Workers::shown);
            workers.extend(shown.map(|(worker, id, cpu_ns)| Worker {
                role,
                worker,
                tid: id.map(|id| id.tid),
                device: id.and_then(|id| self.device(Some(role), id.start_ns, id.tid)),
                cpu_ns,
            }));
        }
        workers
    }

    /// Number of threads outside the cgroups of the VM's pod, by [`sum_index`]; `None` if
    /// the VM has no pod.
    pub(super) fn outside_pod(&self, member: &Member) -> Option<[u32; SUMS]> {
        member.place.as_ref()?.root?;
        Some(self.outside_pod)
    }

    /// Layout of the VM's own threads over cgroups.
    pub(super) fn layout(&self, member: &Member) -> Option<&'static str> {
        let place = member.place.as_ref()?;
        if place.location.uid.is_none() && place.location.runtime != Some("kata") {
            return Some("machine");
        }
        if place.location.is_stray {
            return Some("stray");
        }
        Some(if self.split > 0 { "split" } else { "pod" })
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
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

//! All counters of a VM, kept monotonic.
//!
//! The kernel's totals are cumulative, so a total is the sum of living and retired
//! threads; nothing is accumulated from reading to reading. Such a sum can still
//! decrease: a thread that is being freed is briefly neither alive nor retired, a vCPU is
//! recreated, or a VM is restarted under the same name. A [`Meter`] keeps the highest
//! value until the sum has caught up. The source separates the time that a thread used in
//! a former role: see [`crate::facts::ThreadFact`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::by_path::ByPath;
use crate::account::known::Known;
use crate::account::level_moves::LevelMoves;
use crate::account::memory::MemoryMeter;
use crate::account::meter::{Meter, PodMeter, Times, TimesMeter};
use crate::account::outermost::OutermostMeter;
use crate::account::quota::{BindingMeter, QuotaMeter};
use crate::account::sums::SUMS;
use crate::account::throttle::ThrottleMeter;
use crate::account::vcpu::VcpuMeter;
use crate::account::worker::{WorkerId, Workers};
use crate::vocab::topology::host::Distance;
use crate::vocab::{CgroupId, Durations, Mmu, Moves, Role, Scope};

/// All counters of one VM.
///
/// The serialized form holds only the state that no source reports: see [`Ledger::kept`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// CPU and wait time, by `sum_index`.
    pub roles: [TimesMeter; SUMS],
    /// The pod whose other processes are counted for this VM: see `fleet/pods.rs`.
    pub pod: Option<CgroupId>,
    /// Counters of vCPUs, by `vcpu_id`.
    pub vcpus: BTreeMap<u32, VcpuMeter>,
    /// Numbered workers of each role.
    pub workers: BTreeMap<Role, Workers>,
    /// Number of times that each role was running when a quota ran out, by `sum_index`.
    pub hits: [PodMeter; SUMS],
    /// Counters of levels, by cgroup path.
    pub quotas: ByPath,
    /// Throttling of removed levels.
    pub forgotten: Known<ThrottleMeter>,
    /// Counters of the binding level of each scope.
    pub limits: BTreeMap<Scope, BindingMeter>,
    /// CPU time of threads that moved between levels.
    pub level_moves: LevelMoves,
    /// The highest guest-mode time so far.
    pub guest: Meter,
    /// Moves of its vCPUs, if tracked: by distance, unknown last.
    pub moves: Known<[Meter; MOVES]>,
    /// How often KVM flushed the TLBs of its vCPUs.
    pub tlb_flushes: Known<Meter>,
    /// Counters of its memory.
    pub memory: MemoryMeter,
    /// Counters of its outermost level.
    pub outermost: OutermostMeter,
    /// Number of changes to state that no source reports.
    #[serde(skip)]
    pub changes: u64,
}

/// Number of distances of [`Moves`], plus the unknown one.
const MOVES: usize = Distance::ALL.len() + 1;

impl Ledger {
    /// The VM was restarted with another VMM process.
    pub fn succeed(&mut self) {
        self.roles.iter_mut().for_each(TimesMeter::succeed);
        self.hits.iter_mut().for_each(PodMeter::succeed);
        self.quotas.values_mut().for_each(QuotaMeter::succeed);
        self.level_moves.succeed();
        self.vcpus.values_mut().for_each(VcpuMeter::renew);
        self.guest.renew();
        self.moves
            .change(|moves| moves.iter_mut().for_each(Meter::renew));
        self.tlb_flushes.change(Meter::renew);
        self.memory.renew();
        self.workers.values_mut().for_each(Workers::free);
    }

    /// Counts the other processes of `pod` for this VM from now on, starting at the
    /// values of `former`.
    pub fn take_pod(&mut self, pod: CgroupId, former: Option<&Self>) {
        self.pod = Some(pod);
        self.changes += 1;
        for (index, meter) in self.roles.iter_mut().enumerate() {
            meter.take_pod(former.map(|former| &former.roles[index]));
        }
        for (index, meter) in self.hits.iter_mut().enumerate() {
            meter.take_pod(former.map(|former| &former.hits[index]));
        }
        // If no VM owned the pod, its processes can be those that this VM already counted
        // in another pod.
        if former.is_some() {
            self.level_moves.drop_pod();
            self.quotas.values_mut().for_each(QuotaMeter::take_pod);
        }
    }

    /// Skips `counted`, by `sum_index`: the values that the other processes of its pod
    /// had before the VM moved to this pod together with them.
    pub fn skip_pod(&mut self, counted: &[Times; SUMS]) {
        self.changes += 1;
        let meters = self.roles.iter_mut().zip(counted);
        meters.for_each(|(meter, counted)| meter.skip_pod(*counted));
    }

    /// Stops counting the pod's other processes, which belong to another VM from now on.
    pub fn leave_pod(&mut self) {
        self.pod = None;
        self.changes += 1;
        self.roles.iter_mut().for_each(TimesMeter::leave_pod);
        self.hits.iter_mut().for_each(PodMeter::leave_pod);
    }

    /// Reads the number of vCPU moves, if known. Returns the totals.
    pub fn moves(&mut self, read: Option<Moves>) -> Option<Moves> {
        if let Some(Moves {
            by_distance: [smt, core, llc, numa],
            unknown,
        }) = read
        {
            for (meter, value) in self
                .moves
                .now()
                .iter_mut()
                .zip([smt, core, llc, numa, unknown])
            {
                meter.read(value);
            }
        }
        let [by_distance @ .., unknown] = self.moves.get()?.map(|meter| meter.total());
        Some(Moves {
            by_distance,
            unknown,
        })
    }

    /// Reads KVM's counts of the VM's page tables, with their total of TLB flushes. KVM
    /// counts from 0 again if the process has created another VM.
    #[must_use]
    pub fn mmu(&mut self, read: Option<Mmu>) -> Option<Mmu> {
        let mmu = read?;
        let meter = self.tlb_flushes.now();
        if mmu.tlb_flushes < meter.counted() {
            meter.renew();
            self.changes += 1;
        }
        Some(Mmu {
            tlb_flushes: meter.read(mmu.tlb_flushes),
            ..mmu
        })
    }

    /// Reads the CPU time of the living workers of `role`, in order of creation.
    pub fn workers(&mut self, role: Role, workers: &[(WorkerId, u64)]) {
        let slots = self.workers.entry(role).or_default();
        self.changes += u64::from(slots.read(workers));
    }

    /// How long run queues of all present and former cgroups of the VM were throttled;
    /// `None` if throttling is not tracked or never occurred.
    pub fn throttle_durations(&self) -> Option<Durations> {
        let is_followed = self.quotas.values().any(|quota| quota.throttle().is_some());
        let forgotten = self.forgotten.any().map(ThrottleMeter::show);
        let seen = self.quotas.values().filter_map(QuotaMeter::any_throttle);
        let seen = seen.chain(forgotten).filter(|seen| seen.throttles > 0);
        let durations = seen.map(|seen| seen.unthrottles);
        let sum = durations.reduce(|sum, more| sum.plus(&more));
        sum.filter(|_| is_followed)
    }

    /// Drops the meters of levels that are no longer known, but keeps their throttling.
    pub fn forget_levels(&mut self, is_known: impl Fn(&str) -> bool) {
        for quota in self.quotas.take_if(|path| !is_known(path)) {
            let Some(seen) = quota.any_throttle() else {
                continue;
            };
            let sum = self.forgotten.any().map(ThrottleMeter::show);
            self.forgotten
                .now()
                .read(&sum.unwrap_or_default().plus(&seen));
            self.changes += 1;
        }
    }

    /// The state that another agent cannot read from the host and needs to continue.
    /// `is_held` returns whether a thread of the VM is in the cgroup at a path or below;
    /// any other cgroup may be removed.
    #[must_use]
    pub fn kept(&self, is_held: impl Fn(&str) -> bool) -> Self {
        let mut kept = self.clone();
        kept.vcpus.retain(|_, vcpu| !vcpu.is_plain());
        kept.vcpus.values_mut().for_each(VcpuMeter::drop_plain);
        for (path, quota) in kept.quotas.iter_mut() {
            if !is_held(path) {
                quota.detach();
            }
        }
        kept.quotas.retain(|quota| !quota.is_plain());
        kept
    }

    /// The state as the next agent restores it.
    #[must_use]
    pub fn recalled(mut self) -> Self {
        let workers = std::mem::take(&mut self.workers).into_iter();
        self.workers = workers.map(|(role, of)| (role, of.recalled())).collect();
        self.limits.values_mut().for_each(BindingMeter::recall);
        self.outermost.recall();
        self
    }

    /// The VM ended while no agent was running. Values that are readable only while the
    /// VM lives have an unknown end and restart; `is_left` returns whether a cgroup still
    /// exists.
    pub fn end_unseen(&mut self, is_left: impl Fn(CgroupId) -> bool) {
        let has_cgroup = |cgroup: Option<CgroupId>| cgroup.is_some_and(&is_left);
        self.quotas.retain(|quota| has_cgroup(quota.cgroup()));
        self.limits.retain(|_, limit| limit.can_go_on(&is_left));
        self.workers.values_mut().for_each(Workers::end_unseen);
        self.memory.end_unseen();
        self.outermost.end_unseen(&is_left);
    }
}

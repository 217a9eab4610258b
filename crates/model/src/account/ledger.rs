//! Keeps a VM's counters from ever falling.
//!
//! The kernel's totals are cumulative, so a total is what is alive plus what
//! has retired; nothing is summed up here from reading to reading. Yet a sum
//! can fall: a thread that is being freed is for a moment neither alive nor
//! retired, a vCPU is made anew, a VM is started again under the same name. A [`Meter`]
//! shows the highest value so far until the sum has caught up. What a thread used in a role
//! that it has no more its source tells apart: see [`crate::facts::ThreadFact`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::by_path::ByPath;
use crate::account::known::Known;
use crate::account::level_moves::LevelMoves;
use crate::account::memory::MemoryMeter;
use crate::account::meter::{Meter, PodMeter, Times, TimesMeter};
use crate::account::quota::{BindingMeter, QuotaMeter};
use crate::account::sums::SUMS;
use crate::account::throttle::ThrottleMeter;
use crate::account::vcpu::VcpuMeter;
use crate::account::worker::{WorkerId, Workers};
use crate::facts::ThrottleFact;
use crate::vocab::topology::host::Distance;
use crate::vocab::{CgroupId, Durations, Moves, Role, Scope};

/// All counters of one VM.
///
/// Serialized, it is what no source tells: see [`Ledger::kept`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// By [`sum_index`].
    pub roles: [TimesMeter; SUMS],
    /// The pod whose other processes' time is this VM's: see `fleet/pods.rs`.
    pub pod: Option<CgroupId>,
    /// By `vcpu_id`.
    pub vcpus: BTreeMap<u32, VcpuMeter>,
    /// The numbers of each role's workers.
    pub workers: BTreeMap<Role, Workers>,
    /// How often each role ran when a quota ran out, by [`sum_index`].
    pub hits: [PodMeter; SUMS],
    /// By cgroup path.
    pub quotas: ByPath,
    /// Throttling of levels that are forgotten.
    pub forgotten: Known<ThrottleMeter>,
    /// Of the level of each scope that binds.
    pub limits: BTreeMap<Scope, BindingMeter>,
    /// What threads had used that moved between levels.
    pub level_moves: LevelMoves,
    /// The highest guest-mode time so far.
    pub guest: Meter,
    /// Moves of its vCPUs, if they are followed: by distance, unknown last.
    pub moves: Known<[Meter; MOVES]>,
    /// What was done with its memory.
    pub memory: MemoryMeter,
    /// How often something changed that no source tells.
    #[serde(skip)]
    pub changes: u64,
}

/// Distances of [`Moves`], and the unknown one.
const MOVES: usize = Distance::ALL.len() + 1;

impl Ledger {
    /// The VM was started again by another VMM process.
    pub fn succeed(&mut self) {
        self.roles.iter_mut().for_each(TimesMeter::succeed);
        self.hits.iter_mut().for_each(PodMeter::succeed);
        self.quotas.values_mut().for_each(QuotaMeter::succeed);
        self.level_moves.succeed();
        self.vcpus.values_mut().for_each(VcpuMeter::renew);
        self.guest.renew();
        self.moves
            .change(|moves| moves.iter_mut().for_each(Meter::renew));
        self.memory.renew();
        self.workers.values_mut().for_each(Workers::free);
    }

    /// From now on the time of the other processes of `pod` is this VM's, from where
    /// `former` had counted it.
    pub fn take_pod(&mut self, pod: CgroupId, former: Option<&Self>) {
        self.pod = Some(pod);
        self.changes += 1;
        for (index, meter) in self.roles.iter_mut().enumerate() {
            meter.take_pod(former.map(|former| &former.roles[index]));
        }
        for (index, meter) in self.hits.iter_mut().enumerate() {
            meter.take_pod(former.map(|former| &former.hits[index]));
        }
        // Where no VM had it, its processes may be those that were this VM's elsewhere.
        if former.is_some() {
            self.level_moves.drop_pod();
            self.quotas.values_mut().for_each(QuotaMeter::take_pod);
        }
    }

    /// Other processes of its pod had counted so much, by [`sum_index`], before it moved
    /// to this pod with them.
    pub fn skip_pod(&mut self, counted: &[Times; SUMS]) {
        self.changes += 1;
        let meters = self.roles.iter_mut().zip(counted);
        meters.for_each(|(meter, counted)| meter.skip_pod(*counted));
    }

    /// The time of the pod's other processes is another VM's from now on.
    pub fn leave_pod(&mut self) {
        self.pod = None;
        self.changes += 1;
        self.roles.iter_mut().for_each(TimesMeter::leave_pod);
        self.hits.iter_mut().for_each(PodMeter::leave_pod);
    }

    /// Notes how often the VM's vCPUs moved, if that was read. Returns the
    /// totals.
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

    /// Notes the CPU time of the living workers of `role`, in order of birth.
    pub fn workers(&mut self, role: Role, workers: &[(WorkerId, u64)]) {
        let slots = self.workers.entry(role).or_default();
        self.changes += u64::from(slots.read(workers));
    }

    /// How long run queues of the VM's cgroups were throttled, of all that there were;
    /// `None` where that is not followed, or none ever was throttled.
    pub fn throttle_durations(&self) -> Option<Durations> {
        let is_followed = self.quotas.values().any(|quota| quota.throttle().is_some());
        let forgotten = self.forgotten.any().map(ThrottleMeter::show);
        let seen = self.quotas.values().filter_map(QuotaMeter::any_throttle);
        let seen = seen.chain(forgotten).filter(|seen| seen.throttles > 0);
        let durations = seen.map(|seen| seen.unthrottles);
        let sum = durations.reduce(|sum, more| sum.plus(&more));
        sum.filter(|_| is_followed)
    }

    /// Drops the meters of levels that are no longer known, but for how long they were
    /// throttled.
    pub fn forget_levels(&mut self, is_known: impl Fn(&str) -> bool) {
        for quota in self.quotas.take_if(|path| !is_known(path)) {
            let Some(seen) = quota.any_throttle() else {
                continue;
            };
            let sum = self.forgotten.any().map(ThrottleMeter::show);
            let sum = sum.map_or_else(ThrottleFact::default, ThrottleFact::from);
            self.forgotten.now().read(&sum.plus(&seen.into()));
            self.changes += 1;
        }
    }

    /// What another agent could not read from the host, for it to go on. `is_held` says
    /// whether a thread of the VM sits in the cgroup at a path or below: of others the
    /// cgroup may be gone.
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

    /// As the next agent takes it up.
    #[must_use]
    pub fn recalled(mut self) -> Self {
        let workers = std::mem::take(&mut self.workers).into_iter();
        self.workers = workers.map(|(role, of)| (role, of.recalled())).collect();
        self.limits.values_mut().for_each(BindingMeter::recall);
        self
    }

    /// The VM has ended while no agent looked. What was told only while it lived is not
    /// known to its end, and begins anew; `is_left` tells whether a cgroup is still there.
    pub fn end_unseen(&mut self, is_left: impl Fn(CgroupId) -> bool) {
        let has_cgroup = |cgroup: Option<CgroupId>| cgroup.is_some_and(&is_left);
        self.quotas.retain(|quota| has_cgroup(quota.cgroup()));
        self.limits.retain(|_, limit| limit.can_go_on(&is_left));
        self.workers.values_mut().for_each(Workers::end_unseen);
        self.memory.end_unseen();
    }
}

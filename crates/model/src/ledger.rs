//! Keeps a VM's counters from ever falling.
//!
//! The kernel's totals are cumulative, so a total is what is alive plus what
//! has retired; nothing is summed up here from reading to reading. Yet a sum
//! can fall: a thread that is being freed is for a moment neither alive nor
//! retired, a thread changes its name and with it its role, a vCPU is made
//! anew, a VM is started again under the same name. A [`Meter`] shows the
//! highest value so far until the sum has caught up.

mod vcpu;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::vcpu::{StatsMeter, VcpuMeter};
use crate::facts::Moves;
use crate::memory::MemoryMeter;
use crate::quota::QuotaMeter;
use crate::snapshot::{Role, Scope};
use crate::topology::host::Distance;

/// A total that never falls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    /// What counted before the source began anew.
    base: u64,
    /// What the source had counted before it was this meter's.
    skipped: u64,
    /// The highest total so far.
    shown: u64,
}

impl Meter {
    /// The source says `value` now. Returns the total.
    pub fn read(&mut self, value: u64) -> u64 {
        let counted = value.saturating_sub(self.skipped);
        self.shown = self.shown.max(self.base.saturating_add(counted));
        self.shown
    }

    /// The source counts from zero again: what it said so far stays.
    pub fn renew(&mut self) {
        self.turn_to(0);
    }

    /// From now on another source is read, which says `value` now: only what
    /// it counts from here on is added.
    pub fn turn_to(&mut self, value: u64) {
        self.base = self.shown;
        self.skipped = value;
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.shown
    }
}

/// Times of one role, by where they come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Run delay, ns.
    pub wait_ns: u64,
}

impl Times {
    /// Adds a thread's.
    pub fn add(&mut self, cpu_ns: u64, wait_ns: u64) {
        self.cpu_ns = self.cpu_ns.saturating_add(cpu_ns);
        self.wait_ns = self.wait_ns.saturating_add(wait_ns);
    }
}

/// A total of a VM's pod: a part of it comes from the VMM's own process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodMeter {
    meter: Meter,
    /// The most that came from the VMM's own process.
    own: u64,
    /// What came from VMM processes of this VM before the present one.
    former: u64,
}

impl PodMeter {
    /// `own` is of the VMM's process, `pod` of the other processes of its pod.
    pub fn read(&mut self, own: u64, pod: u64) -> u64 {
        self.own = self.own.max(own);
        let total = self.former.saturating_add(self.own).saturating_add(pod);
        self.meter.read(total)
    }

    /// The VMM's process is replaced by another; the pod's other processes
    /// go on.
    pub fn succeed(&mut self) {
        self.former = self.former.saturating_add(self.own);
        self.own = 0;
    }

    /// The total as last read.
    pub fn total(&self) -> u64 {
        self.meter.total()
    }
}

/// The times of one role (or of what has none) as they are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimesMeter {
    cpu: PodMeter,
    wait: PodMeter,
}

impl TimesMeter {
    /// `own` is of the VMM's process, `pod` of the other processes of its pod.
    pub fn read(&mut self, own: Times, pod: Times) -> Times {
        Times {
            cpu_ns: self.cpu.read(own.cpu_ns, pod.cpu_ns),
            wait_ns: self.wait.read(own.wait_ns, pod.wait_ns),
        }
    }

    /// See [`PodMeter::succeed`].
    pub fn succeed(&mut self) {
        self.cpu.succeed();
        self.wait.succeed();
    }
}

/// Which of a VM's sums a [`Ledger`] keeps by role: a role, or none.
pub const SUMS: usize = Role::ALL.len() + 1;

/// The index of a role's sum; `None` is unattributed.
pub fn sum_index(role: Option<Role>) -> usize {
    role.map_or(SUMS - 1, |role| {
        Role::ALL
            .iter()
            .position(|one| *one == role)
            .expect("ALL has every role")
    })
}

/// All counters of one VM.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// By [`sum_index`].
    pub roles: [TimesMeter; SUMS],
    /// By `vcpu_id`.
    pub vcpus: BTreeMap<u32, VcpuMeter>,
    /// Workers of each role, by ordinal.
    pub workers: BTreeMap<Role, Vec<WorkerSlot>>,
    /// How often each role ran when a quota ran out, by [`sum_index`].
    pub hits: [PodMeter; SUMS],
    /// By cgroup path.
    pub quotas: BTreeMap<Arc<str>, QuotaMeter>,
    /// Of the tightest level of each scope.
    pub limits: BTreeMap<Scope, QuotaMeter>,
    /// The highest guest-mode time so far.
    pub guest: Meter,
    /// Moves of its vCPUs, if they are followed: by distance, unknown last.
    pub moves: Option<[Meter; MOVES]>,
    /// What was done with its memory.
    pub memory: MemoryMeter,
}

/// Distances of [`Moves`], and the unknown one.
const MOVES: usize = Distance::ALL.len() + 1;

/// Workers of one role that are shown alone. More than the queues of any
/// device in use; the rest counts in its role only.
const MAX_WORKERS: usize = 64;

impl Ledger {
    /// The VM was started again by another VMM process.
    pub fn succeed(&mut self) {
        self.roles.iter_mut().for_each(TimesMeter::succeed);
        self.hits.iter_mut().for_each(PodMeter::succeed);
        self.quotas.values_mut().for_each(QuotaMeter::succeed);
        self.vcpus.values_mut().for_each(VcpuMeter::renew);
        self.guest.renew();
        self.moves.iter_mut().flatten().for_each(Meter::renew);
        self.memory.renew();
        for slot in self.workers.values_mut().flatten() {
            slot.free();
        }
    }

    /// Notes how often the VM's vCPUs moved, if that was read. Returns the
    /// totals.
    pub fn moves(&mut self, read: Option<Moves>) -> Option<Moves> {
        if let Some(Moves {
            by_distance: [smt, core, llc, numa],
            unknown,
        }) = read
        {
            let meters = self.moves.get_or_insert_default();
            for (meter, value) in meters.iter_mut().zip([smt, core, llc, numa, unknown]) {
                meter.read(value);
            }
        }
        let [by_distance @ .., unknown] = self.moves?.map(|meter| meter.total());
        Some(Moves {
            by_distance,
            unknown,
        })
    }

    /// Notes the CPU time of a living worker, and gives it a number if it has
    /// none: the lowest that is free. `workers` must come in order of birth.
    pub fn workers(&mut self, role: Role, workers: &[(WorkerId, u64)]) {
        let slots = self.workers.entry(role).or_default();
        for slot in slots.iter_mut() {
            if slot
                .id
                .is_some_and(|id| workers.iter().all(|(one, _)| *one != id))
            {
                slot.free();
            }
        }
        for (id, cpu_ns) in workers {
            let index = slots.iter().position(|slot| slot.id == Some(*id));
            let index = index.or_else(|| slots.iter().position(|slot| slot.id.is_none()));
            match index {
                Some(index) => slots[index].read(*id, *cpu_ns),
                None if slots.len() < MAX_WORKERS => {
                    let mut slot = WorkerSlot::default();
                    slot.read(*id, *cpu_ns);
                    slots.push(slot);
                }
                None => {}
            }
        }
    }
}

/// A thread, by what no other thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerId {
    /// When it started, ns since boot.
    pub start_ns: u64,
    /// Its thread id.
    pub tid: u32,
}

/// A worker's number: who has it, and what all that had it used.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSlot {
    /// The living thread.
    pub id: Option<WorkerId>,
    /// CPU time, ns.
    pub cpu: Meter,
}

impl WorkerSlot {
    fn read(&mut self, id: WorkerId, cpu_ns: u64) {
        self.id = Some(id);
        self.cpu.read(cpu_ns);
    }

    fn free(&mut self) {
        self.id = None;
        self.cpu.renew();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{Ledger, Meter, Times, TimesMeter, WorkerId};
    use crate::snapshot::Role;

    #[test]
    fn a_meter_shows_the_highest_until_the_source_caught_up() {
        let mut meter = Meter::default();
        assert_eq!(meter.read(100), 100);
        assert_eq!(meter.read(60), 100, "a dip does not show");
        assert_eq!(meter.read(110), 110, "and leaves nothing behind");
        meter.renew();
        assert_eq!(meter.read(5), 115, "a source made anew adds to the old");
        meter.turn_to(1000);
        assert_eq!(
            meter.read(1003),
            118,
            "of another source only what is new counts"
        );
    }

    proptest! {
        #[test]
        fn no_meter_falls(steps in proptest::collection::vec((any::<u64>(), any::<bool>()), 0..64)) {
            let mut meter = Meter::default();
            let mut before = 0;
            for (value, renewed) in steps {
                if renewed {
                    meter.renew();
                }
                let now = meter.read(value);
                prop_assert!(now >= before);
                before = now;
            }
        }

        /// A VM restarted in its pod: what its processes used adds up, what
        /// the pod's other processes used counts once.
        #[test]
        fn a_restart_counts_each_process_once(
            lives in proptest::collection::vec(0u64..1_000_000, 1..8),
            pods in proptest::collection::vec(0u64..1_000_000, 8),
        ) {
            let mut meter = TimesMeter::default();
            let (mut own, mut pod, mut shown) = (0, 0, 0);
            for (life, more) in lives.iter().zip(pods) {
                own += life;
                pod += more;
                let times = |cpu_ns| Times { cpu_ns, wait_ns: 0 };
                shown = meter.read(times(*life), times(pod)).cpu_ns;
                meter.succeed();
            }
            prop_assert_eq!(shown, own + pod);
        }
    }

    fn worker(tid: u32) -> WorkerId {
        WorkerId {
            start_ns: u64::from(tid) * 10,
            tid,
        }
    }

    #[test]
    fn workers_keep_their_numbers_and_hand_them_on() {
        let mut ledger = Ledger::default();
        ledger.workers(Role::Vhost, &[(worker(7), 100), (worker(9), 200)]);
        ledger.workers(Role::Vhost, &[(worker(9), 250)]);
        ledger.workers(Role::Vhost, &[(worker(9), 260), (worker(11), 5)]);
        let slots = &ledger.workers[&Role::Vhost];
        assert_eq!(slots.len(), 2);
        assert_eq!((slots[0].id, slots[0].cpu.total()), (Some(worker(11)), 105));
        assert_eq!((slots[1].id, slots[1].cpu.total()), (Some(worker(9)), 260));
    }

    #[test]
    fn workers_are_bounded() {
        let mut ledger = Ledger::default();
        let many: Vec<_> = (0..1000).map(|tid| (worker(tid), 1)).collect();
        ledger.workers(Role::Virtiofsd, &many);
        assert_eq!(ledger.workers[&Role::Virtiofsd].len(), super::MAX_WORKERS);
    }
}

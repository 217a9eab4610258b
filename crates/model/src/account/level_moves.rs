//! Threads that move from one level to another: the time used before a move stays with
//! the level that was charged for it.
//!
//! A thread's time is one number since its creation, so the present level has all of it.
//! The time at the last reading before the move is added to the former level and
//! subtracted from the present one. The time between that reading and the move counts for
//! the present level.
//!
//! The same applies to a VM that moves from one pod to another together with other
//! processes of its pod: the time of these processes counts once.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::account::charge::Charges;
use crate::account::meter::Times;
use crate::account::sums::{SUMS, sum_index};
use crate::vocab::{CgroupId, Role};

/// Charge of a thread at one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// Thread id.
    pub tid: u32,
    /// Start time of the thread, ns since boot.
    pub start_ns: u64,
    /// Number of class changes; each restarts the times.
    pub class_changes: u32,
    /// Whether the thread belongs to the VMM process, not to another process of the pod.
    pub is_own: bool,
    /// Role of the thread.
    pub role: Option<Role>,
    /// The nearest cgroup, from the thread's own upwards, that can have a limit.
    pub level: Option<CgroupId>,
    /// CPU time and run delay in the present class.
    pub times: Times,
}

impl Charged {
    fn is_same_as(&self, other: &Self) -> bool {
        self.tid == other.tid && self.start_ns == other.start_ns
    }
}

/// The threads of one VM as the last reading charged them.
#[derive(Debug, Clone, Default)]
pub struct LastCharged {
    /// The pod of the VM.
    pod: Option<CgroupId>,
    last: Vec<Charged>,
    /// Spare buffer for the next reading.
    spare: Vec<Charged>,
}

/// Differences between a reading of a VM's threads and the previous one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Followed {
    /// Whether a thread moved to another level.
    pub has_moved: bool,
    /// Set if the VM moved to another pod: the times of the pod's other processes that
    /// moved with it, by [`sum_index`].
    pub brought: Option<[Times; SUMS]>,
}

/// Search distance for a thread whose index has changed.
const NEAR: usize = 8;

impl LastCharged {
    /// An empty buffer for the charges of the next reading, for [`LastCharged::follow`].
    pub fn room(&mut self) -> Vec<Charged> {
        self.spare.clear();
        std::mem::take(&mut self.spare)
    }

    /// Records in `moves` which of the threads charged `now` were in another level
    /// before. The order is usually that of the last reading. `pod` is the pod of the VM.
    pub fn follow(
        &mut self,
        now: Vec<Charged>,
        pod: Option<CgroupId>,
        moves: &mut LevelMoves,
    ) -> Followed {
        let is_another = self.pod.zip(pod).is_some_and(|(last, pod)| last != pod);
        self.pod = pod;
        let mut by_id: Option<FxHashMap<(u32, u64), usize>> = None;
        let mut next = 0;
        let mut followed = Followed {
            has_moved: false,
            brought: is_another.then(Default::default),
        };
        for thread in &now {
            let near = self.last.iter().skip(next).take(NEAR);
            let near = near.clone().position(|one| one.is_same_as(thread));
            let found = near.map(|near| next + near).or_else(|| {
                let ids = self.last.iter().zip(0..);
                let by_id = by_id.get_or_insert_with(|| {
                    ids.map(|(one, at)| ((one.tid, one.start_ns), at)).collect()
                });
                by_id.get(&(thread.tid, thread.start_ns)).copied()
            });
            let Some((before, at)) = found.and_then(|at| Some((self.last.get(at)?, at))) else {
                continue;
            };
            next = at + 1;
            if before.class_changes != thread.class_changes {
                continue;
            }
            if before.level != thread.level {
                moves.note(before, thread.level);
                followed.has_moved = true;
            }
            if let Some(brought) = followed.brought.as_mut().filter(|_| !before.is_own) {
                let Times { cpu_ns, wait_ns } = before.times;
                brought[sum_index(before.role)].add(cpu_ns, wait_ns);
            }
        }
        self.spare = std::mem::replace(&mut self.last, now);
        followed
    }
}

/// CPU time of threads before they moved, by level and role.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LevelMoves(Vec<Moved>);

/// Maximum number of (level, role) pairs: more than Kata's cgroups times all roles. The
/// oldest pair is dropped first; its level then counts only the threads that are in it.
const MOVES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Moved {
    level: CgroupId,
    is_own: bool,
    role: Option<Role>,
    /// CPU time of threads that left the level, ns.
    left_ns: u64,
    /// CPU time that arriving threads had used before they moved, ns.
    brought_ns: u64,
}

impl LevelMoves {
    fn note(&mut self, thread: &Charged, to: Option<CgroupId>) {
        if let Some(moved) = thread.level.map(|from| self.of(from, thread)) {
            moved.left_ns = moved.left_ns.saturating_add(thread.times.cpu_ns);
        }
        if let Some(moved) = to.map(|to| self.of(to, thread)) {
            moved.brought_ns = moved.brought_ns.saturating_add(thread.times.cpu_ns);
        }
    }

    fn of(&mut self, level: CgroupId, thread: &Charged) -> &mut Moved {
        let is_it =
            |one: &Moved| (one.level, one.is_own, one.role) == (level, thread.is_own, thread.role);
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            if self.0.len() >= MOVES_MAX {
                self.0.remove(0);
            }
            self.0.push(Moved {
                level,
                is_own: thread.is_own,
                role: thread.role,
                left_ns: 0,
                brought_ns: 0,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Corrects charges that were computed from the threads' present levels.
    pub fn apply(&self, charges: &mut Charges) {
        for one in &self.0 {
            let sums = charges.of(one.level);
            let sum = sums.sum(one.is_own, one.role);
            *sum = sum
                .saturating_add(one.left_ns)
                .saturating_sub(one.brought_ns);
        }
    }

    /// The VMM process was replaced by another, whose threads have not moved yet.
    pub fn succeed(&mut self) {
        self.0.retain(|one| !one.is_own);
    }

    /// Forgets the pod's other processes: another VM owns, or owned, their time.
    pub fn drop_pod(&mut self) {
        self.0.retain(|one| one.is_own);
    }
}

#[cfg(test)]
mod tests {
    use super::{Charged, LastCharged, LevelMoves, MOVES_MAX};
    use crate::account::charge::Charges;
    use crate::account::meter::Times;
    use crate::account::sums::sum_index;
    use crate::vocab::{CgroupId, Owner, Role, VmKey};

    const VM: Owner = Owner::Vm(VmKey {
        start_ns: 1,
        tgid: 1,
    });

    fn at(tid: u32, level: u64, cpu_ns: u64) -> Charged {
        Charged {
            tid,
            start_ns: 1,
            class_changes: 0,
            is_own: true,
            role: Some(Role::Vcpu),
            level: (level > 0).then_some(CgroupId(level)),
            times: Times { cpu_ns, wait_ns: 0 },
        }
    }

    /// The charge of each level after readings of these threads.
    fn charged(readings: &[&[Charged]]) -> [u64; 3] {
        let (mut last, mut moves) = (LastCharged::default(), LevelMoves::default());
        let mut charges = Charges::default();
        for now in readings {
            last.follow(now.to_vec(), None, &mut moves);
            charges = Charges::default();
            for one in *now {
                charges.add(one.level, VM, one.role, one.times.cpu_ns);
            }
            moves.apply(&mut charges);
        }
        [1, 2, 3].map(|level| charges.of(CgroupId(level)).own[sum_index(Some(Role::Vcpu))])
    }

    #[test]
    fn moved_thread_leaves_time_at_former_level() {
        let stays = at(7, 1, 5);
        let before = [at(6, 1, 100), stays];
        assert_eq!(charged(&[&before, &[at(6, 2, 130), stays]]), [105, 30, 0]);
        let then = [at(6, 2, 130), stays];
        let last = [at(6, 3, 170), stays];
        assert_eq!(charged(&[&before, &then, &last]), [105, 30, 40]);
        let back = [at(6, 1, 170), stays];
        assert_eq!(charged(&[&before, &then, &back]), [145, 30, 0]);
    }

    #[test]
    fn thread_outside_all_levels_is_not_charged() {
        assert_eq!(charged(&[&[at(6, 0, 100)], &[at(6, 1, 110)]]), [10, 0, 0]);
        assert_eq!(charged(&[&[at(6, 1, 100)], &[at(6, 0, 110)]]), [100, 0, 0]);
    }

    #[test]
    fn moved_thread_is_found_among_many_ended_ones() {
        let before: Vec<_> = (0..50).map(|tid| at(tid, 1, 10)).collect();
        let mut now: Vec<_> = (100..150).map(|tid| at(tid, 1, 0)).collect();
        now.push(at(40, 2, 15));
        now.push(at(3, 2, 12));
        assert_eq!(charged(&[&before, &now]), [20, 7, 0]);
    }

    #[test]
    fn moves_are_bounded() {
        let (mut last, mut moves) = (LastCharged::default(), LevelMoves::default());
        for level in 1..1000 {
            last.follow(vec![at(1, level, level)], None, &mut moves);
        }
        assert_eq!(moves.0.len(), MOVES_MAX);
    }
}

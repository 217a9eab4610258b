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

use std::slice;

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
    fn key(&self) -> (u32, u64) {
        (self.tid, self.start_ns)
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// The threads of one VM as the last reading charged them. A reading compares each thread
/// with its last charge and then replaces the charge in place, because most threads stay
/// where they are and in their order.
#[derive(Debug, Clone, Default)]
pub struct LastCharged {
    /// The pod of the VM.
    pod: Option<CgroupId>,
    /// In the order of the last reading; during a reading, the first `read` are present
    /// charges.
    threads: Vec<Charged>,
    read: usize,
    /// Last charges of threads that were at another index in this reading.
    others: FxHashMap<(u32, u64), Charged>,
    /// Last charges of threads that moved, with their present level.
    moved: Vec<(Charged, Option<CgroupId>)>,
    brought: Option<Box<[Times; SUMS]>>,
}

/// Differences between a reading of a VM's threads and the previous one.
#[derive(Debug, Clone, Default)]
pub struct Followed {
    /// Whether a thread moved to another level.
    pub has_moved: bool,
    /// Set if the VM moved to another pod: the times of the pod's other processes that
    /// moved with it, by [`sum_index`].
    pub brought: Option<Box<[Times; SUMS]>>,
}

impl LastCharged {
    /// Begins a reading of the VM, which is in `pod`.
    pub fn begin(&mut self, pod: Option<CgroupId>) {
        let is_another = self.pod.zip(pod).is_some_and(|(last, pod)| last != pod);
        self.pod = pod;
        self.brought = is_another.then(Box::default);
    }

    /// The charges of the last reading.
    pub fn threads(&self) -> slice::Iter<'_, Charged> {
        self.threads.iter()
    }

    /// Replaces the charge of a thread. Charge each thread once.
    pub fn charge(&mut self, thread: Charged) {
        let before = match self.threads.get_mut(self.read) {
            Some(last) if last.is_same_as(&thread) => Some(std::mem::replace(last, thread)),
            _ => self.charge_other(thread),
        };
        self.read += 1;
        let Some(before) = before else {
            return;
        };
        if before.class_changes != thread.class_changes {
            return;
        }
        if before.level != thread.level {
            self.moved.push((before, thread.level));
        }
        if let Some(brought) = self.brought.as_mut().filter(|_| !before.is_own) {
            let Times { cpu_ns, wait_ns } = before.times;
            brought[sum_index(before.role)].add(cpu_ns, wait_ns);
        }
    }

    /// Charges a thread that is not at its last index. Returns its last charge, if any.
    #[cold]
    fn charge_other(&mut self, thread: Charged) -> Option<Charged> {
        let rest = self.threads.drain(self.read..);
        self.others.extend(rest.map(|one| (one.key(), one)));
        self.threads.push(thread);
        self.others.remove(&thread.key())
    }

    /// Ends the reading. Records in `moves` which threads were in another level before.
    pub fn end(&mut self, moves: &mut LevelMoves) -> Followed {
        self.threads.truncate(self.read);
        self.read = 0;
        if !self.others.is_empty() {
            self.others = FxHashMap::default();
        }
        let has_moved = !self.moved.is_empty();
        for (before, to) in self.moved.drain(..) {
            moves.note(&before, to);
        }
        Followed {
            has_moved,
            brought: self.brought.take(),
        }
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

    fn follow(last: &mut LastCharged, now: &[Charged], moves: &mut LevelMoves) {
        last.begin(None);
        for thread in now {
            last.charge(*thread);
        }
        last.end(moves);
        assert_eq!(last.threads, now, "the next reading compares with these");
    }

    /// The charge of each level after readings of these threads.
    fn charged(readings: &[&[Charged]]) -> [u64; 3] {
        let (mut last, mut moves) = (LastCharged::default(), LevelMoves::default());
        let mut charges = Charges::default();
        for now in readings {
            follow(&mut last, now, &mut moves);
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
            follow(&mut last, &[at(1, level, level)], &mut moves);
        }
        assert_eq!(moves.0.len(), MOVES_MAX);
    }
}

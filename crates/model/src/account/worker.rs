//! Numbers of workers: threads of one role that are shown individually.
//!
//! When a thread ends, the next one reuses its number and its counter continues. The
//! source reports the time of a thread that ended while no agent was running only per
//! role. Its number is not reused, because the counter would decrease.

use serde::{Deserialize, Serialize};

use crate::account::meter::Meter;

/// Maximum number of workers per role that are shown individually: more than the queues
/// of any device in use. The others count only in their role.
const MAX_WORKERS: usize = 64;

/// Identity of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerId {
    /// Start time of the thread, ns since boot.
    pub start_ns: u64,
    /// Thread id.
    pub tid: u32,
    /// Number of class changes; each restarts the times.
    #[serde(default)]
    pub class_changes: u32,
}

/// The workers of one role, by number.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Workers(Vec<Slot>);

/// One number: its holder, and the CPU time of all its holders.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Slot {
    holder: Holder,
    /// CPU time, ns.
    cpu: Meter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Holder {
    /// No thread; the next one continues the counter.
    Nobody,
    /// This living thread.
    Thread(WorkerId),
    /// This thread, according to a previous agent.
    Recalled(WorkerId),
    /// A thread that ended while no agent was running.
    Unseen,
}

impl Workers {
    /// Reads the CPU time of living workers, which must be in order of creation. A worker
    /// without a number gets the lowest free one. Returns true if a number changed its
    /// holder.
    pub fn read(&mut self, workers: &[(WorkerId, u64)]) -> bool {
        let mut has_changed = false;
        let lives = |id: WorkerId| workers.iter().any(|(one, _)| *one == id);
        for slot in &mut self.0 {
            match slot.holder {
                Holder::Thread(id) if !lives(id) => slot.free(),
                Holder::Recalled(id) if !lives(id) => slot.holder = Holder::Unseen,
                _ => continue,
            }
            has_changed = true;
        }
        for (id, cpu_ns) in workers {
            let index = self.0.iter().position(|slot| slot.id() == Some(*id));
            let free = || {
                let mut slots = self.0.iter();
                slots.position(|slot| slot.holder == Holder::Nobody)
            };
            let index = match index.or_else(free) {
                Some(index) => index,
                None if self.0.len() < MAX_WORKERS => {
                    self.0.push(Slot {
                        holder: Holder::Nobody,
                        cpu: Meter::default(),
                    });
                    self.0.len() - 1
                }
                None => continue,
            };
            let slot = &mut self.0[index];
            has_changed |= slot.id() != Some(*id);
            slot.holder = Holder::Thread(*id);
            slot.cpu.read(*cpu_ns);
        }
        has_changed
    }

    /// Each number with its living thread and the CPU time of all its holders, ns.
    pub fn shown(&self) -> impl Iterator<Item = (u32, Option<WorkerId>, u64)> + '_ {
        (0u32..)
            .zip(&self.0)
            .filter(|(_, slot)| slot.holder != Holder::Unseen)
            .map(|(number, slot)| (number, slot.id(), slot.cpu.total()))
    }

    /// All threads have ended.
    pub fn free(&mut self) {
        let held = |slot: &&mut Slot| matches!(slot.holder, Holder::Thread(_));
        self.0.iter_mut().filter(held).for_each(Slot::free);
        self.end_unseen();
    }

    /// Workers restored from a previous agent ended while no agent was running.
    pub fn end_unseen(&mut self) {
        for slot in &mut self.0 {
            if matches!(slot.holder, Holder::Recalled(_)) {
                slot.holder = Holder::Unseen;
            }
        }
    }

    /// The state as another agent restores it.
    #[must_use]
    pub fn recalled(mut self) -> Self {
        for slot in &mut self.0 {
            if let Holder::Thread(id) = slot.holder {
                slot.holder = Holder::Recalled(id);
            }
        }
        self
    }
}

impl Slot {
    fn id(&self) -> Option<WorkerId> {
        match self.holder {
            Holder::Thread(id) | Holder::Recalled(id) => Some(id),
            Holder::Nobody | Holder::Unseen => None,
        }
    }

    fn free(&mut self) {
        self.holder = Holder::Nobody;
        self.cpu.renew();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORKERS, WorkerId, Workers};

    fn worker(tid: u32) -> WorkerId {
        WorkerId {
            start_ns: u64::from(tid) * 10,
            tid,
            class_changes: 0,
        }
    }

    fn shown(workers: &Workers) -> Vec<(u32, Option<u32>, u64)> {
        let shown = workers.shown();
        shown
            .map(|(number, id, cpu_ns)| (number, id.map(|id| id.tid), cpu_ns))
            .collect()
    }

    #[test]
    fn workers_keep_numbers_and_ended_numbers_are_reused() {
        let mut workers = Workers::default();
        assert!(workers.read(&[(worker(7), 100), (worker(9), 200)]));
        assert!(workers.read(&[(worker(9), 250)]), "7 has ended");
        assert!(workers.read(&[(worker(9), 260), (worker(11), 5)]));
        assert!(!workers.read(&[(worker(9), 260), (worker(11), 5)]));
        let expected = [(0, Some(11), 105), (1, Some(9), 260)];
        assert_eq!(shown(&workers), expected);
    }

    #[test]
    fn number_of_worker_that_ended_unseen_is_not_reused() {
        let mut workers = Workers::default();
        workers.read(&[(worker(7), 100), (worker(9), 200)]);
        let mut workers = workers.recalled();
        assert!(workers.read(&[(worker(9), 300), (worker(11), 5)]));
        let expected = [(1, Some(9), 300), (2, Some(11), 5)];
        assert_eq!(shown(&workers), expected);
        workers.free();
        workers.read(&[(worker(13), 1)]);
        let expected = [(1, Some(13), 301), (2, None, 5)];
        assert_eq!(shown(&workers), expected);
    }

    #[test]
    fn workers_are_bounded() {
        let mut workers = Workers::default();
        let many: Vec<_> = (0..1000).map(|tid| (worker(tid), 1)).collect();
        workers.read(&many);
        assert_eq!(workers.shown().count(), MAX_WORKERS);
    }
}

//! The living threads of a reading, made of those of the former one.

use std::vec::IntoIter;

use crate::facts::thread::ThreadFact;
use crate::facts::threads::{FormerRuns, Threads};

/// Renews the threads of a former reading, from the first to the last. A thread that has not
/// changed stays where it is in memory.
#[derive(Debug)]
pub struct Renewal {
    /// The new threads.
    threads: Threads,
    /// The former threads behind as many as are renewed, while both have the same order.
    rest: Rest,
}

/// Former threads that are not renewed yet.
#[derive(Debug)]
enum Rest {
    /// They follow the new threads in the same vector, and have these runs.
    InPlace(FormerRuns),
    /// A thread was created or has exited: the position of the first of them among all former
    /// threads, and them.
    Apart(usize, IntoIter<ThreadFact>),
}

impl Renewal {
    /// Begins with the threads of the former reading.
    pub fn of(mut former: Threads) -> Self {
        let runs = former.begin_renewal();
        Self {
            threads: former,
            rest: Rest::InPlace(runs),
        }
    }

    /// Number of threads so far.
    pub fn len(&self) -> usize {
        self.threads.renewed()
    }

    /// Whether there are no threads so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a thread that is new or has changed.
    pub fn push(&mut self, thread: ThreadFact) {
        if matches!(self.rest, Rest::InPlace(_)) && !self.threads.fits(&thread) {
            self.set_apart();
        }
        self.threads.put(thread);
    }

    /// Adds `count` former threads from position `from` on, which have not changed. `false` if
    /// the former reading has no such threads behind those that were added before.
    #[must_use]
    pub fn keep(&mut self, from: usize, count: usize) -> bool {
        let at = self.len();
        if let Rest::InPlace(runs) = &mut self.rest {
            if from == at {
                return self.threads.keep(count, runs);
            }
            self.set_apart();
        }
        let Rest::Apart(at, rest) = &mut self.rest else {
            return false;
        };
        let Some(exited) = from.checked_sub(*at) else {
            return false;
        };
        if exited.saturating_add(count) > rest.len() {
            return false;
        }
        rest.by_ref().take(exited).for_each(drop);
        for thread in rest.by_ref().take(count) {
            self.threads.put(thread);
        }
        *at = from + count;
        true
    }

    /// The threads of the new reading.
    pub fn end(self) -> Threads {
        let mut threads = self.threads;
        drop(threads.split_rest());
        threads
    }

    fn set_apart(&mut self) {
        let at = self.len();
        self.rest = Rest::Apart(at, self.threads.split_rest().into_iter());
    }
}

impl Default for Renewal {
    /// A renewal of no threads.
    fn default() -> Self {
        Self::of(Threads::default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Renewal;
    use crate::facts::threads::Threads;
    use crate::facts::threads::tests::thread;

    fn threads(tids: impl IntoIterator<Item = u32>) -> Threads {
        tids.into_iter().map(of).collect()
    }

    /// A thread whose process and cgroup follow from its id.
    fn of(tid: u32) -> crate::facts::ThreadFact {
        thread(
            tid,
            u64::from(tid / 4),
            u64::from(tid / 2),
            tid.is_multiple_of(3),
        )
    }

    fn tids(threads: &Threads) -> Vec<u32> {
        threads.iter().map(|thread| thread.tid).collect()
    }

    #[test]
    fn threads_stay_in_place_and_changed_ones_are_replaced() {
        let former = threads([1, 2, 3, 4]);
        let place = former.as_ptr();
        let mut renewal = Renewal::of(former);
        assert!(renewal.keep(0, 1));
        let mut changed = of(2);
        changed.cpu_ns = 7;
        renewal.push(changed);
        assert!(renewal.keep(2, 2));
        let renewed = renewal.end();
        assert_eq!(tids(&renewed), [1, 2, 3, 4]);
        assert_eq!(renewed.iter().map(|one| one.cpu_ns).max(), Some(7));
        assert_eq!(renewed.as_ptr(), place);
    }

    #[test]
    fn unknown_threads_are_not_kept() {
        let former = || Renewal::of(threads([1, 2, 3]));
        assert!(!former().keep(0, 4));
        assert!(!former().keep(2, 2));
        assert!(!former().keep(3, 1));
        assert!(!former().keep(usize::MAX, 1));
        let mut renewal = former();
        assert!(renewal.keep(1, 1));
        assert!(!renewal.keep(0, 1), "that one has exited");
        assert!(!Renewal::default().keep(0, 1));
    }

    proptest! {
        /// For any threads that were created, have exited, run or sleep, the result equals the
        /// threads without a renewal.
        #[test]
        fn renewed_threads_are_those_of_the_new_reading(
            changes in prop::collection::vec(0..6_u8, 0..60),
        ) {
            let former: Vec<u32> = (0..60).collect();
            let mut renewal = Renewal::of(threads(former.clone()));
            let mut expected = Vec::new();
            let mut at = 0_u32;
            for (new, change) in (100_u32..).zip(changes) {
                match change {
                    0 => at += 1,
                    1 => {
                        renewal.push(of(new));
                        expected.push(of(new));
                    }
                    2 => {
                        let mut ran = of(at);
                        ran.cpu_ns = u64::from(new);
                        renewal.push(ran.clone());
                        expected.push(ran);
                        at += 1;
                    }
                    _ => {
                        let count = u32::from(change) - 2;
                        let is_known = at + count <= 60;
                        prop_assert_eq!(renewal.keep(at as usize, count as usize), is_known);
                        if !is_known {
                            break;
                        }
                        expected.extend((at..at + count).map(of));
                        at += count;
                    }
                }
                prop_assert_eq!(renewal.len(), expected.len());
                if at >= 60 {
                    break;
                }
            }
            prop_assert_eq!(renewal.end(), Threads::from(expected));
        }
    }
}

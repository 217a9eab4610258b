//! Co-stop: the time in which some vCPUs of the VM ran while others waited.
//!
//! A state of a thread is known when it ends, and the threads' states end in any order. So
//! the states are kept as changes of the numbers of running and waiting vCPUs over time,
//! and summed up when enough later changes are known:
//!
//! ```text
//!  summed up │ changes that are kept
//! ───────────┼──────────────────────────► time
//! ```

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::timeline::piece::{Doing, Slice, Track};

/// Number of kept changes: 5000 timeslices of threads that each run, wait and sleep. They
/// use less than 1 MiB.
const KEPT: usize = 16_384;

/// Co-stop of a VM with several vCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoStop {
    /// Time in which at least one vCPU ran while at least one other was runnable and did
    /// not run, ns.
    pub time_ns: u64,
    /// The part of it in which at least one of the others waited for a CPU, ns. In the
    /// rest all others that were runnable were throttled.
    pub contended_ns: u64,
    /// Time of vCPUs whose state was unknown, or became known too late, ns, summed over
    /// vCPUs: the maximum error of the values above.
    pub unknown_ns: u64,
}

/// State of a vCPU that matters here: index into [`Counts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Runnable,
    Throttled,
}

impl State {
    fn of(what: Doing) -> Option<Self> {
        match what {
            Doing::Running(_) => Some(Self::Running),
            Doing::Runnable => Some(Self::Runnable),
            Doing::Throttled => Some(Self::Throttled),
            _ => None,
        }
    }
}

/// Numbers of vCPUs in each [`State`], or their changes.
type Counts = [i64; 3];

/// Sums up the co-stop of the vCPUs of a VM.
#[derive(Debug)]
pub(super) struct Meter {
    /// Number of vCPUs at the start.
    count: usize,
    /// Number of kept changes above which the older half is summed up.
    kept: usize,
    /// vCPUs by tid, with the state that they were taken to be in at `done_ns`.
    vcpus: FxHashMap<u32, Option<State>>,
    /// Changes after `done_ns`, by time.
    changes: BTreeMap<u64, Counts>,
    /// The time up to which all is summed up.
    done_ns: u64,
    sum: CoStop,
}

impl Meter {
    /// For vCPUs with these thread ids.
    pub(super) fn new(began_ns: u64, tids: impl Iterator<Item = u32>) -> Self {
        let vcpus: FxHashMap<_, _> = tids.map(|tid| (tid, None)).collect();
        Self {
            count: vcpus.len(),
            kept: KEPT,
            vcpus,
            changes: BTreeMap::new(),
            done_ns: began_ns,
            sum: CoStop::default(),
        }
    }

    /// A meter from 0 that keeps at most `kept` changes.
    #[cfg(test)]
    pub(super) fn keeping<const N: usize>(kept: usize, tids: [u32; N]) -> Self {
        Self {
            kept,
            ..Self::new(0, tids.into_iter())
        }
    }

    /// Adds a state that has ended.
    pub(super) fn add(&mut self, slice: &Slice) {
        let Track::Thread(tid) = slice.track else {
            return;
        };
        let Some(assumed) = self.vcpus.get(&tid).copied() else {
            return;
        };
        let state = State::of(slice.what);
        if slice.what == Doing::Unknown {
            self.unknown(slice.took_ns());
        }
        if slice.from_ns < self.done_ns && assumed != state {
            let until_ns = slice.to_ns.min(self.done_ns);
            self.unknown(until_ns.saturating_sub(slice.from_ns));
        }
        if let Some(state) = state {
            self.add_state(state, slice.from_ns, slice.to_ns);
        }
    }

    /// Another thread has the id of this vCPU's thread from now on.
    pub(super) fn forget(&mut self, tid: u32) {
        self.vcpus.remove(&tid);
    }

    /// Whether too many changes are kept: then [`Meter::sum_up`] is due.
    pub(super) fn is_full(&self) -> bool {
        self.changes.len() > self.kept
    }

    /// Sums up the older half of the changes. `present` has the state of a vCPU that has
    /// not ended yet, and its start.
    pub(super) fn sum_up(&mut self, present: impl Fn(u32) -> Option<(Doing, u64)>) {
        let middle = self.changes.keys().nth(self.changes.len() / 2);
        let Some(until_ns) = middle.copied() else {
            return;
        };
        let tids: Vec<u32> = self.vcpus.keys().copied().collect();
        for tid in tids {
            let state = present(tid).filter(|(_, since_ns)| *since_ns < until_ns);
            let state = state.and_then(|(what, since_ns)| Some((State::of(what)?, since_ns)));
            if let Some((state, since_ns)) = state {
                self.add_state(state, since_ns, until_ns);
            }
            self.vcpus.insert(tid, state.map(|(state, _)| state));
        }
        self.sum_up_to(until_ns);
    }

    /// The co-stop; `None` if there are fewer than two vCPUs.
    pub(super) fn end(mut self) -> Option<CoStop> {
        self.sum_up_to(u64::MAX);
        (self.count > 1).then_some(self.sum)
    }

    fn unknown(&mut self, ns: u64) {
        self.sum.unknown_ns = self.sum.unknown_ns.saturating_add(ns);
    }

    fn add_state(&mut self, state: State, from_ns: u64, to_ns: u64) {
        let from_ns = from_ns.max(self.done_ns);
        if from_ns < to_ns {
            *self.change(state, from_ns) += 1;
            *self.change(state, to_ns) -= 1;
        }
    }

    fn change(&mut self, state: State, at_ns: u64) -> &mut i64 {
        let [running, runnable, throttled] = self.changes.entry(at_ns).or_default();
        match state {
            State::Running => running,
            State::Runnable => runnable,
            State::Throttled => throttled,
        }
    }

    /// Sums up to `until_ns`. States that go on are kept as changes at that time, so the
    /// numbers start at 0.
    fn sum_up_to(&mut self, until_ns: u64) {
        let later = self.changes.split_off(&until_ns);
        let earlier = std::mem::replace(&mut self.changes, later);
        let mut counts = Counts::default();
        let mut since_ns = self.done_ns;
        let ends = earlier.into_iter().chain([(until_ns, Counts::default())]);
        for (at_ns, changes) in ends {
            let [running, runnable, throttled] = counts;
            let took_ns = at_ns.saturating_sub(since_ns);
            if running > 0 && runnable + throttled > 0 {
                self.sum.time_ns = self.sum.time_ns.saturating_add(took_ns);
            }
            if running > 0 && runnable > 0 {
                self.sum.contended_ns = self.sum.contended_ns.saturating_add(took_ns);
            }
            since_ns = at_ns;
            for (count, change) in counts.iter_mut().zip(changes) {
                *count += change;
            }
        }
        if counts != Counts::default() {
            let kept = self.changes.entry(until_ns).or_default();
            for (kept, count) in kept.iter_mut().zip(counts) {
                *kept += count;
            }
        }
        self.done_ns = until_ns;
    }
}

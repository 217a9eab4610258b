//! Throttling as it was seen to happen: beyond what the kernel counts.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::facts::{CgroupId, ThreadClass};
use crate::ledger::Meter;

/// Upper bounds of the durations that are told apart, ms; there is one kind
/// more, without a bound (`THROTTLE_BOUNDS_MS` in `bpf/abi.h`). A run queue that
/// is throttled mostly stands for what is left of a period of 100 ms.
pub const BOUNDS_MS: [u64; 8] = [1, 5, 10, 25, 50, 100, 250, 1000];

/// How many durations are told apart.
pub const DURATIONS: usize = BOUNDS_MS.len() + 1;

/// How long run queues of CPUs stood before they were set free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    /// How often, by [`BOUNDS_MS`]; the last has none.
    pub counts: [u64; DURATIONS],
    /// All of them together, ns: what the kernel adds to `throttled_time`.
    pub sum_ns: u64,
}

impl Durations {
    /// How often a run queue was set free.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Those of two cgroups together.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        for (sum, count) in self.counts.iter_mut().zip(more.counts) {
            *sum = sum.saturating_add(count);
        }
        self.sum_ns = self.sum_ns.saturating_add(more.sum_ns);
        self
    }
}

impl Serialize for Durations {
    /// By upper bound: `{"1ms": 0, …, "over": 0}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bounds = BOUNDS_MS.iter().map(|ms| format!("{ms}ms"));
        let names = bounds.chain(["over".to_owned()]);
        serializer.collect_map(names.zip(self.counts))
    }
}

/// What was seen of one cgroup's throttling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleFact {
    /// Run queues of CPUs that were throttled.
    pub throttles: u64,
    /// Wall time in which at least one of them stood, ns; a throttling counts
    /// once it has ended.
    pub wall_ns: u64,
    /// How long each stood.
    pub durations: Durations,
}

impl ThrottleFact {
    /// What was seen of two cgroups together; of their wall times the sum.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.throttles = self.throttles.saturating_add(more.throttles);
        self.wall_ns = self.wall_ns.saturating_add(more.wall_ns);
        self.durations = self.durations.plus(&more.durations);
        self
    }

    /// All that it says, in the order of [`ThrottleMeter`].
    fn values(&self) -> impl Iterator<Item = u64> {
        [self.wall_ns, self.throttles, self.durations.sum_ns]
            .into_iter()
            .chain(self.durations.counts)
    }
}

impl From<Throttle> for ThrottleFact {
    fn from(shown: Throttle) -> Self {
        Self {
            throttles: shown.throttles,
            wall_ns: shown.wall_ns,
            durations: shown.unthrottles,
        }
    }
}

/// Who ran when a quota ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HitFact {
    /// Which threads; the cgroup is the one whose quota it was.
    pub class: ThreadClass,
    /// How often.
    pub hits: u64,
}

/// All throttling of the host's VMs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThrottlingFacts {
    /// By cgroup.
    pub cgroups: FxHashMap<CgroupId, ThrottleFact>,
    /// Who ran.
    pub hits: Vec<HitFact>,
}

/// The throttling of one level of a VM's path, as it is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Throttle {
    /// Wall time in which it was throttled on at least one CPU, ns.
    pub wall_ns: u64,
    /// Run queues of CPUs that were throttled.
    pub throttles: u64,
    /// How often one was set free, by how long it had stood.
    pub unthrottles: Durations,
    /// All those times together, ns.
    pub unthrottled_ns: u64,
}

/// Counters of [`Throttle`] that never fall.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct ThrottleMeter([Meter; DURATIONS + 3]);

impl ThrottleMeter {
    /// The source says `fact` now.
    pub fn read(&mut self, fact: &ThrottleFact) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.read(value);
        }
    }

    /// From now on another source is read, which says `fact` now.
    pub fn turn_to(&mut self, fact: &ThrottleFact) {
        for (meter, value) in self.0.iter_mut().zip(fact.values()) {
            meter.turn_to(value);
        }
    }

    /// Changes each of its meters.
    pub fn each(&mut self, change: impl FnMut(&mut Meter)) {
        self.0.iter_mut().for_each(change);
    }

    /// The totals.
    pub fn show(&self) -> Throttle {
        let [wall, throttles, sum, counts @ ..] = self.0.map(|meter| meter.total());
        Throttle {
            wall_ns: wall,
            throttles,
            unthrottles: Durations {
                counts,
                sum_ns: sum,
            },
            unthrottled_ns: sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DURATIONS, Durations, ThrottleFact, ThrottleMeter};
    use crate::ledger::Meter;

    fn fact(of: u64) -> ThrottleFact {
        ThrottleFact {
            throttles: of,
            wall_ns: of * 10,
            durations: Durations {
                counts: [of; DURATIONS],
                sum_ns: of * 20,
            },
        }
    }

    #[test]
    fn what_is_read_is_shown() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        let shown = meter.show();
        assert_eq!((shown.wall_ns, shown.throttles), (30, 3));
        assert_eq!(shown.unthrottles, fact(3).durations);
        assert_eq!(shown.unthrottles.count(), 3 * DURATIONS as u64);
    }

    #[test]
    fn another_cgroup_counts_on_from_where_it_is() {
        let mut meter = ThrottleMeter::default();
        meter.read(&fact(3));
        meter.turn_to(&fact(100));
        meter.read(&fact(101));
        assert_eq!(meter.show().wall_ns, 40);
        meter.each(Meter::renew);
        meter.read(&fact(1));
        assert_eq!(meter.show().wall_ns, 50);
    }
}

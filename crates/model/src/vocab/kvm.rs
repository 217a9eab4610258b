//! KVM's counters of a vCPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Time that a vCPU spent in halt polling, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HaltPoll {
    /// Polling that ended with a wake-up.
    pub success: u64,
    /// Polling that ended without a wake-up.
    pub fail: u64,
}

/// VM exits by class; the classes sum to all exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExitCounts(pub [u64; 7]);

impl ExitCounts {
    /// The names of the classes: port I/O (`io_exits`), MMIO emulated in user space
    /// (`mmio_exits`), HLT, host interrupts (`irq_exits`), interrupt windows
    /// (`irq_window_exits`), hypercalls, and all other exits (EPT faults, MSRs, CPUID …).
    pub const KINDS: [&'static str; 7] = [
        "io",
        "mmio",
        "halt",
        "interrupt",
        "interrupt_window",
        "hypercall",
        "other",
    ];

    /// Splits all exits (`exits`) into the known classes and "other". The counters are
    /// not read at one instant, so the classes can be ahead of the total. KVM also counts
    /// an exit before its class (`vcpu_enter_guest`, `arch/x86/kvm/x86.c`), so an exit in
    /// progress counts as "other". The BPF programs keep such an exit as "other"
    /// (`keep_other_exits`, `bpf/vcpu.bpf.h`) until the next exit outside the known
    /// classes makes up for it.
    pub fn of(total: u64, classes: [u64; 6]) -> Self {
        let other = classes
            .iter()
            .fold(total, |rest, class| rest.saturating_sub(*class));
        let [io, mmio, halt, interrupt, window, hypercall] = classes;
        Self([io, mmio, halt, interrupt, window, hypercall, other])
    }

    /// The classes by name.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Self::KINDS.into_iter().zip(self.0)
    }

    /// Exits for HLT.
    pub fn halt(&self) -> u64 {
        self.0[2]
    }

    /// Exits outside the known classes: EPT faults, MSRs, CPUID …
    pub fn other(&self) -> u64 {
        self.0[6]
    }

    /// The exits since `then`.
    #[must_use]
    pub fn since(mut self, then: Self) -> Self {
        for (count, before) in self.0.iter_mut().zip(then.0) {
            *count = count.saturating_sub(before);
        }
        self
    }
}

impl Serialize for ExitCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.by_kind())
    }
}

impl<'de> Deserialize<'de> for ExitCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_kind = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let count = |kind: &str| by_kind.get(kind).copied().unwrap_or(0);
        Ok(Self(Self::KINDS.map(count)))
    }
}

/// Polls at the start of halts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Polls {
    /// All polls (`halt_attempted_poll`).
    pub attempted: u64,
    /// Polls that ended with a wake-up (`halt_successful_poll`).
    pub successful: u64,
    /// Halts that ended without an event for the vCPU (`halt_poll_invalid`).
    pub invalid: u64,
}

/// Directed yields: a vCPU that waits for another one gives it its CPU, because it spins
/// (pause loop) or the guest asks for it (hypercall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Yields {
    /// Yields to a certain vCPU (`directed_yield_attempted`).
    pub attempted: u64,
    /// Yields after which the other vCPU was scheduled (`directed_yield_successful`).
    pub successful: u64,
}

/// KVM's counters of one vCPU. A counter is absent if the kernel lacks it or if it was
/// not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KvmCounters {
    /// Time spent polling in HLT, ns.
    pub halt_poll_ns: Option<HaltPoll>,
    /// Time blocked in HLT, ns (`halt_wait_ns`, since v5.15).
    pub halt_wait_ns: Option<u64>,
    /// Exits by class.
    pub exits: Option<ExitCounts>,
    /// Page faults that KVM fixed (`pf_fixed`).
    pub pf_fixed: Option<u64>,
    /// Page faults taken (`pf_taken`, since v6.1).
    pub pf_taken: Option<u64>,
    /// Halts that ended because the vCPU was woken up (`halt_wakeup`).
    pub halt_wakeups: Option<u64>,
    /// Polls at the start of halts.
    pub halt_polls: Option<Polls>,
    /// Directed yields (since v5.13).
    pub yields: Option<Yields>,
    /// How often KVM reported to the guest that the vCPU is preempted
    /// (`preemption_reported`, since v5.19 and in stable kernels). Guests with paravirtual spin locks or TLB
    /// flushes then do not wait for it.
    pub preemptions_reported: Option<u64>,
}

/// Number of counters of [`KvmCounters`].
const COUNTERS: usize = 19;
/// Position of the exits outside the known classes.
const OTHER_EXITS: usize = 9;

impl KvmCounters {
    /// Every single counter, in a fixed order.
    fn each(&self) -> [Option<u64>; COUNTERS] {
        let polled = self.halt_poll_ns;
        let [io, mmio, halt, interrupt, window, hypercall, other] =
            self.exits.map_or([None; 7], |exits| exits.0.map(Some));
        let (polls, yields) = (self.halt_polls, self.yields);
        [
            polled.map(|poll| poll.success),
            polled.map(|poll| poll.fail),
            self.halt_wait_ns,
            io,
            mmio,
            halt,
            interrupt,
            window,
            hypercall,
            other,
            self.pf_fixed,
            self.pf_taken,
            self.halt_wakeups,
            polls.map(|polls| polls.attempted),
            polls.map(|polls| polls.successful),
            polls.map(|polls| polls.invalid),
            yields.map(|yields| yields.attempted),
            yields.map(|yields| yields.successful),
            self.preemptions_reported,
        ]
    }

    /// The reverse of [`Self::each`].
    fn of_each(counters: &[Option<u64>; COUNTERS]) -> Self {
        let [
            success,
            fail,
            halt_wait_ns,
            io,
            mmio,
            halt,
            interrupt,
            window,
            hypercall,
            other,
            pf_fixed,
            pf_taken,
            halt_wakeups,
            polled,
            polled_well,
            invalid,
            yielded,
            yielded_well,
            preemptions_reported,
        ] = *counters;
        let exits = || {
            Some(ExitCounts([
                io?, mmio?, halt?, interrupt?, window?, hypercall?, other?,
            ]))
        };
        let polls = || {
            Some(Polls {
                attempted: polled?,
                successful: polled_well?,
                invalid: invalid?,
            })
        };
        let poll = success.zip(fail);
        let yields = yielded.zip(yielded_well);
        Self {
            halt_poll_ns: poll.map(|(success, fail)| HaltPoll { success, fail }),
            halt_wait_ns,
            exits: exits(),
            pf_fixed,
            pf_taken,
            halt_wakeups,
            halt_polls: polls(),
            yields: yields.map(|(attempted, successful)| Yields {
                attempted,
                successful,
            }),
            preemptions_reported,
        }
    }

    /// Combines each counter with that of `other`; a counter absent on one side takes the
    /// value of the other side.
    #[must_use]
    pub fn with(&self, other: &Self, one: impl Fn(u64, u64) -> u64) -> Self {
        let mut counters = self.each();
        for (now, other) in counters.iter_mut().zip(other.each()) {
            *now = match (*now, other) {
                (Some(now), Some(other)) => Some(one(now, other)),
                (now, other) => now.or(other),
            };
        }
        Self::of_each(&counters)
    }

    /// The increase since `then`; absent if either value is absent.
    #[must_use]
    pub fn since(&self, then: &Self) -> Self {
        let mut counters = self.each();
        for (now, then) in counters.iter_mut().zip(then.each()) {
            *now = now.zip(then).map(|(now, then)| now.saturating_sub(then));
        }
        Self::of_each(&counters)
    }

    /// Whether a counter is lower than in `before`. KVM's counters never decrease. The
    /// class "other" is left out because it is derived from the others.
    pub fn fell_from(&self, before: &Self) -> bool {
        let both = self.each().into_iter().zip(before.each()).enumerate();
        let mut counters = both.filter(|(at, _)| *at != OTHER_EXITS);
        counters.any(|(_, (now, before))| now.zip(before).is_some_and(|(now, then)| now < then))
    }
}

#[cfg(test)]
mod tests {
    use super::{ExitCounts, HaltPoll, KvmCounters, OTHER_EXITS, Polls, Yields};

    fn counters(count: u64, pf_taken: Option<u64>) -> KvmCounters {
        KvmCounters {
            halt_poll_ns: Some(HaltPoll {
                success: count,
                fail: count,
            }),
            halt_wait_ns: Some(count),
            exits: Some(ExitCounts([count; 7])),
            pf_fixed: Some(count),
            pf_taken,
            halt_wakeups: Some(count),
            halt_polls: Some(Polls {
                attempted: count,
                successful: count,
                invalid: count,
            }),
            yields: Some(Yields {
                attempted: count,
                successful: count,
            }),
            preemptions_reported: Some(count),
        }
    }

    #[test]
    fn each_counter_has_its_own_place() {
        let places: Vec<u64> = (1..).take(super::COUNTERS).collect();
        let places = <[u64; super::COUNTERS]>::try_from(places).expect("as many");
        let counters = KvmCounters::of_each(&places.map(Some));
        assert_eq!(counters.each(), places.map(Some));
        let other = counters.exits.map(|exits| exits.other());
        assert_eq!(other, counters.each()[OTHER_EXITS]);
    }

    #[test]
    fn absent_counter_is_taken_from_the_other_and_has_no_difference() {
        let (now, then) = (counters(7, Some(9)), counters(5, None));
        assert_eq!(now.with(&then, u64::saturating_add), counters(12, Some(9)));
        assert_eq!(then.with(&now, u64::max), counters(7, Some(9)));
        assert_eq!(now.since(&then), counters(2, None));
        assert!(then.fell_from(&now) && !now.fell_from(&then));
    }

    #[test]
    fn unclassified_exits_alone_are_not_a_fall() {
        let (mut now, then) = (counters(7, None), counters(7, None));
        now.exits = Some(ExitCounts([7, 7, 7, 7, 7, 7, 0]));
        assert!(!now.fell_from(&then));
        now.halt_poll_ns = Some(HaltPoll {
            success: 7,
            fail: 6,
        });
        assert!(now.fell_from(&then));
    }

    #[test]
    fn classes_exceeding_total_leave_no_other_exits() {
        assert_eq!(ExitCounts::of(10, [1, 2, 3, 0, 0, 0]).other(), 4);
        assert_eq!(ExitCounts::of(5, [1, 2, 3, 0, 0, 0]).other(), 0);
    }

    #[test]
    fn kept_counters_equal_shown_counters() {
        let now = counters(7, None);
        let kept = serde_json::to_string(&now).expect("JSON");
        assert_eq!(
            serde_json::from_str::<KvmCounters>(&kept).expect("JSON"),
            now
        );
    }
}

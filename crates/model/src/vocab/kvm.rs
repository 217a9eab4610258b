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
}

/// Combines both values with `one`; returns the present value if the other is absent.
fn either<T>(now: Option<T>, other: Option<T>, one: impl Fn(T, T) -> T) -> Option<T> {
    match (now, other) {
        (Some(now), Some(other)) => Some(one(now, other)),
        (now, other) => now.or(other),
    }
}

impl KvmCounters {
    /// Combines each counter with that of `other`; a counter absent on one side takes the
    /// value of the other side.
    #[must_use]
    pub fn with(&self, other: &Self, one: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        Self {
            halt_poll_ns: either(self.halt_poll_ns, other.halt_poll_ns, |now, other| {
                HaltPoll {
                    success: one(now.success, other.success),
                    fail: one(now.fail, other.fail),
                }
            }),
            halt_wait_ns: either(self.halt_wait_ns, other.halt_wait_ns, one),
            exits: either(self.exits, other.exits, |mut now, other| {
                for (now, other) in now.0.iter_mut().zip(other.0) {
                    *now = one(*now, other);
                }
                now
            }),
            pf_fixed: either(self.pf_fixed, other.pf_fixed, one),
            pf_taken: either(self.pf_taken, other.pf_taken, one),
        }
    }

    /// The increase since `then`; absent if either value is absent.
    #[must_use]
    pub fn since(&self, then: &Self) -> Self {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let poll = |now: HaltPoll, then: HaltPoll| HaltPoll {
            success: now.success.saturating_sub(then.success),
            fail: now.fail.saturating_sub(then.fail),
        };
        let polls = self.halt_poll_ns.zip(then.halt_poll_ns);
        let exits = self.exits.zip(then.exits);
        Self {
            halt_poll_ns: polls.map(|(now, then)| poll(now, then)),
            halt_wait_ns: since(self.halt_wait_ns, then.halt_wait_ns),
            exits: exits.map(|(now, then)| now.since(then)),
            pf_fixed: since(self.pf_fixed, then.pf_fixed),
            pf_taken: since(self.pf_taken, then.pf_taken),
        }
    }

    /// Whether a counter is lower than in `before`. KVM's counters never decrease. The
    /// class "other" is left out because it is derived from the others.
    pub fn fell_from(&self, before: &Self) -> bool {
        let counters = |of: &Self| {
            let polls = of.halt_poll_ns.map(|poll| [poll.success, poll.fail]);
            let classes = of.exits.map(|exits| {
                let [classes @ .., _] = exits.0;
                classes
            });
            (polls, classes, [of.halt_wait_ns, of.pf_fixed, of.pf_taken])
        };
        let (polls, classes, others) = counters(self);
        let (polls_before, classes_before, others_before) = counters(before);
        let fell = |(now, before): (u64, u64)| now < before;
        let polls = polls.zip(polls_before).into_iter();
        let classes = classes.zip(classes_before).into_iter();
        let others = others.into_iter().zip(others_before);
        polls
            .flat_map(|(now, before)| now.into_iter().zip(before))
            .any(fell)
            || classes
                .flat_map(|(now, before)| now.into_iter().zip(before))
                .any(fell)
            || others.filter_map(|(now, before)| now.zip(before)).any(fell)
    }
}

#[cfg(test)]
mod tests {
    use super::{ExitCounts, HaltPoll, KvmCounters};

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
        }
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

//! KVM's counters of a vCPU.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

use serde::ser::SerializeStruct as _;
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
        let mut kinds = serializer.serialize_struct("ExitCounts", Self::KINDS.len())?;
        for (kind, count) in self.by_kind() {
            kinds.serialize_field(kind, &count)?;
        }
        kinds.end()
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

/// KVM's counters of one vCPU by name. A counter is absent if the kernel lacks it or if it was
/// not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KvmValues {
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
    /// (`preemption_reported`, since v5.19 and in stable kernels). Guests with paravirtual spin
    /// locks or TLB flushes then do not wait for it.
    pub preemptions_reported: Option<u64>,
}

/// Number of counters of [`KvmCounters`].
const COUNTERS: usize = 19;
/// Position of the exits outside the known classes.
const OTHER_EXITS: usize = 9;
/// An absent counter. No counter gets there.
const ABSENT: u64 = u64::MAX;

/// KVM's counters of one vCPU. There are thousands of these, and each reading goes over all,
/// so they are one array, without a flag for each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KvmCounters([u64; COUNTERS]);

impl Default for KvmCounters {
    fn default() -> Self {
        Self([ABSENT; COUNTERS])
    }
}

impl Debug for KvmCounters {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        KvmValues::from(*self).fmt(f)
    }
}

impl From<KvmValues> for KvmCounters {
    fn from(values: KvmValues) -> Self {
        let (poll, polls, yields) = (values.halt_poll_ns, values.halt_polls, values.yields);
        let [io, mmio, halt, interrupt, window, hypercall, other] =
            values.exits.map_or([None; 7], |exits| exits.0.map(Some));
        let all = [
            poll.map(|poll| poll.success),
            poll.map(|poll| poll.fail),
            values.halt_wait_ns,
            io,
            mmio,
            halt,
            interrupt,
            window,
            hypercall,
            other,
            values.pf_fixed,
            values.pf_taken,
            values.halt_wakeups,
            polls.map(|polls| polls.attempted),
            polls.map(|polls| polls.successful),
            polls.map(|polls| polls.invalid),
            yields.map(|yields| yields.attempted),
            yields.map(|yields| yields.successful),
            values.preemptions_reported,
        ];
        Self(all.map(|counter| counter.unwrap_or(ABSENT)))
    }
}

impl From<KvmCounters> for KvmValues {
    fn from(counters: KvmCounters) -> Self {
        Self {
            halt_poll_ns: counters.halt_poll_ns(),
            halt_wait_ns: counters.halt_wait_ns(),
            exits: counters.exits(),
            pf_fixed: counters.pf_fixed(),
            pf_taken: counters.pf_taken(),
            halt_wakeups: counters.halt_wakeups(),
            halt_polls: counters.halt_polls(),
            yields: counters.yields(),
            preemptions_reported: counters.preemptions_reported(),
        }
    }
}

impl KvmCounters {
    /// See [`KvmValues::halt_poll_ns`].
    pub fn halt_poll_ns(&self) -> Option<HaltPoll> {
        let [success, fail, ..] = self.0;
        let poll = HaltPoll { success, fail };
        (success != ABSENT).then_some(poll)
    }

    /// See [`KvmValues::halt_wait_ns`].
    pub fn halt_wait_ns(&self) -> Option<u64> {
        known(self.0[2])
    }

    /// See [`KvmValues::exits`].
    pub fn exits(&self) -> Option<ExitCounts> {
        let [
            _,
            _,
            _,
            io,
            mmio,
            halt,
            interrupt,
            window,
            hypercall,
            other,
            ..,
        ] = self.0;
        let exits = [io, mmio, halt, interrupt, window, hypercall, other];
        (io != ABSENT).then_some(ExitCounts(exits))
    }

    /// See [`KvmValues::pf_fixed`].
    pub fn pf_fixed(&self) -> Option<u64> {
        known(self.0[10])
    }

    /// See [`KvmValues::pf_taken`].
    pub fn pf_taken(&self) -> Option<u64> {
        known(self.0[11])
    }

    /// See [`KvmValues::halt_wakeups`].
    pub fn halt_wakeups(&self) -> Option<u64> {
        known(self.0[12])
    }

    /// See [`KvmValues::halt_polls`].
    pub fn halt_polls(&self) -> Option<Polls> {
        let polls = Polls {
            attempted: self.0[13],
            successful: self.0[14],
            invalid: self.0[15],
        };
        (polls.attempted != ABSENT).then_some(polls)
    }

    /// See [`KvmValues::yields`].
    pub fn yields(&self) -> Option<Yields> {
        let yields = Yields {
            attempted: self.0[16],
            successful: self.0[17],
        };
        (yields.attempted != ABSENT).then_some(yields)
    }

    /// See [`KvmValues::preemptions_reported`].
    pub fn preemptions_reported(&self) -> Option<u64> {
        known(self.0[18])
    }

    /// Combines each counter with that of `other`; a counter absent on one side takes the
    /// value of the other side.
    #[must_use]
    pub fn with(mut self, other: &Self, one: impl Fn(u64, u64) -> u64) -> Self {
        for (now, other) in self.0.iter_mut().zip(other.0) {
            *now = match (*now, other) {
                (ABSENT, other) => other,
                (now, ABSENT) => now,
                (now, other) => one(now, other).min(ABSENT - 1),
            };
        }
        self
    }

    /// The increase since `then`; absent if either value is absent.
    #[must_use]
    pub fn since(mut self, then: &Self) -> Self {
        for (now, then) in self.0.iter_mut().zip(then.0) {
            *now = match (*now, then) {
                (ABSENT, _) | (_, ABSENT) => ABSENT,
                (now, then) => now.saturating_sub(then),
            };
        }
        self
    }

    /// Whether a counter is lower than in `before`. KVM's counters never decrease. The
    /// class "other" is left out because it is derived from the others.
    pub fn fell_from(&self, before: &Self) -> bool {
        let both = self.0.into_iter().zip(before.0).enumerate();
        let mut counters = both.filter(|(at, _)| *at != OTHER_EXITS);
        // An absent counter is higher than any, so it has not fallen.
        counters.any(|(_, (now, before))| now < before && before != ABSENT)
    }
}

mod binary;

fn known(counter: u64) -> Option<u64> {
    (counter != ABSENT).then_some(counter)
}

#[cfg(test)]
mod tests;

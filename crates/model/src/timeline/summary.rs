//! What a timeline comes to.

use crate::timeline::exits::ExitReason;
use crate::timeline::piece::{Actor, Doing, Slice};

/// What a trace came to.
#[derive(Debug, Clone)]
pub struct Summary {
    /// When it began, ns of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// How long it was, ns.
    pub took_ns: u64,
    /// Events that came in.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// What each thread did, in the order of their ids.
    pub threads: Vec<ThreadUse>,
    /// Threads that came and went and were too many to keep.
    pub more_threads: u64,
    /// The longest times in which a thread waited for a CPU, the longest first.
    pub waits: Vec<Slice>,
    /// The longest times in which a quota held a thread back.
    pub throttles: Vec<Slice>,
}

/// What one thread did.
#[derive(Debug, Clone)]
pub struct ThreadUse {
    /// Who it is.
    pub actor: Actor,
    /// Its time.
    pub split: Split,
    /// Why its guest was left, of a vCPU.
    pub exits: Vec<(Option<ExitReason>, ExitUse)>,
}

/// The wall time of one thread, ns: these add up to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    /// It ran.
    pub running_ns: u64,
    /// It waited for a CPU.
    pub runnable_ns: u64,
    /// A quota held it back.
    pub throttled_ns: u64,
    /// It waited for something else.
    pub sleeping_ns: u64,
    /// The same, and took no signals.
    pub uninterruptible_ns: u64,
    /// Not known: events were lost, or do not fit to each other.
    pub unknown_ns: u64,
    /// Of the time that it ran: what its guest had of it, where that was told.
    pub guest: Option<GuestSplit>,
}

impl Split {
    pub(super) fn add(&mut self, what: Doing, took_ns: u64) {
        let sum = match what {
            Doing::Running(_) => &mut self.running_ns,
            Doing::Runnable => &mut self.runnable_ns,
            Doing::Throttled => &mut self.throttled_ns,
            Doing::Sleeping => &mut self.sleeping_ns,
            Doing::Uninterruptible => &mut self.uninterruptible_ns,
            _ => &mut self.unknown_ns,
        };
        *sum += took_ns;
    }

    /// All of it, ns.
    pub fn wall_ns(&self) -> u64 {
        self.running_ns
            + self.runnable_ns
            + self.throttled_ns
            + self.sleeping_ns
            + self.uninterruptible_ns
            + self.unknown_ns
    }

    /// What the host did for the vCPU, ns: it ran, and neither its guest nor did
    /// it poll.
    pub fn host_ns(&self) -> Option<u64> {
        let guest = self.guest?;
        let others = guest.guest_ns + guest.polled_ns + guest.unknown_ns;
        Some(self.running_ns.saturating_sub(others))
    }
}

/// The time that a vCPU's thread ran, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestSplit {
    /// Its guest ran.
    pub guest_ns: u64,
    /// It polled in a halt.
    pub polled_ns: u64,
    /// Events were lost.
    pub unknown_ns: u64,
    /// Exits that were told.
    pub exits_told: u64,
    /// Exits that KVM itself counted from the first one told to the last.
    pub exits_counted: Option<u64>,
}

/// What exits of one reason came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExitUse {
    /// How many there were.
    pub count: u64,
    /// From exit to entry, ns, sleep included.
    pub took_ns: u64,
    /// For how long the thread ran in them and did not poll, ns.
    pub host_ns: u64,
    /// The longest, ns, sleep included.
    pub longest_ns: u64,
    /// How many of them the VMM saw to.
    pub to_vmm: u64,
}

impl ExitUse {
    pub(super) fn add(&mut self, took_ns: u64, host_ns: u64, to_vmm: bool) {
        self.merge(&Self {
            count: 1,
            took_ns,
            host_ns,
            longest_ns: took_ns,
            to_vmm: to_vmm.into(),
        });
    }

    /// Adds those of another vCPU.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.took_ns = self.took_ns.saturating_add(other.took_ns);
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.to_vmm += other.to_vmm;
    }
}

/// The longest slices that came by.
#[derive(Debug, Default)]
pub(super) struct Longest(Vec<Slice>);

impl Longest {
    /// How many are kept.
    const KEPT: usize = 5;

    pub(super) fn add(&mut self, slice: &Slice) {
        let at = self
            .0
            .partition_point(|kept| kept.took_ns() >= slice.took_ns());
        if at < Self::KEPT {
            self.0.insert(at, *slice);
            self.0.truncate(Self::KEPT);
        }
    }

    pub(super) fn into_slices(self) -> Vec<Slice> {
        self.0
    }
}

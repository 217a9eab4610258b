//! Totals of a timeline.

use crate::timeline::co_stop::CoStop;
use crate::timeline::exits::ExitReason;
use crate::timeline::piece::{Actor, Doing, Slice};

/// Totals of a trace.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Start, ns of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// Duration, ns.
    pub took_ns: u64,
    /// Number of events received.
    pub events: u64,
    /// Number of lost events.
    pub lost: u64,
    /// Totals of each thread, by thread id.
    pub threads: Vec<ThreadUse>,
    /// Number of ended threads beyond the limit of kept threads.
    pub more_threads: u64,
    /// The longest waits of threads for a CPU, longest first.
    pub waits: Vec<Slice>,
    /// The longest throttled times of threads, longest first.
    pub throttles: Vec<Slice>,
    /// Time in which some vCPUs ran while others waited; `None` for a VM with fewer than
    /// two vCPUs.
    pub co_stop: Option<CoStop>,
}

/// Totals of one thread.
#[derive(Debug, Clone)]
pub struct ThreadUse {
    /// The thread.
    pub actor: Actor,
    /// Its time by state.
    pub split: Split,
    /// Exits by reason, for a vCPU.
    pub exits: Vec<(Option<ExitReason>, ExitUse)>,
}

/// Wall time of one thread by state, ns; the states sum to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    /// Running.
    pub running_ns: u64,
    /// Waiting for a CPU.
    pub runnable_ns: u64,
    /// Throttled by a quota.
    pub throttled_ns: u64,
    /// Sleeping, interruptible.
    pub sleeping_ns: u64,
    /// Sleeping, uninterruptible.
    pub uninterruptible_ns: u64,
    /// Unknown: events were lost or are inconsistent.
    pub unknown_ns: u64,
    /// The part of the running time in guest mode, if there were guest events.
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

    /// Sum of all states, ns.
    pub fn wall_ns(&self) -> u64 {
        self.running_ns
            + self.runnable_ns
            + self.throttled_ns
            + self.sleeping_ns
            + self.uninterruptible_ns
            + self.unknown_ns
    }

    /// Time that the host worked for the vCPU, ns: running time without guest mode and
    /// polling.
    pub fn host_ns(&self) -> Option<u64> {
        let guest = self.guest?;
        let others = guest.guest_ns + guest.polled_ns + guest.unknown_ns;
        Some(self.running_ns.saturating_sub(others))
    }
}

/// Running time of a vCPU's thread, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestSplit {
    /// In guest mode.
    pub guest_ns: u64,
    /// Polling in a halt.
    pub polled_ns: u64,
    /// Unknown because events were lost.
    pub unknown_ns: u64,
    /// Number of exit events received.
    pub exits_recorded: u64,
    /// KVM's own count of exits from the first to the last received one.
    pub exits_counted: Option<u64>,
}

/// Totals of the exits of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExitUse {
    /// Number of exits.
    pub count: u64,
    /// Time from exit to entry, ns, including sleep.
    pub took_ns: u64,
    /// Running time without polling, ns.
    pub host_ns: u64,
    /// Duration of the longest exit, ns, including sleep.
    pub longest_ns: u64,
    /// Number of exits that the VMM handled.
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

    /// Adds the totals of another vCPU.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.took_ns = self.took_ns.saturating_add(other.took_ns);
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.to_vmm += other.to_vmm;
    }
}

/// The longest slices seen.
#[derive(Debug, Default)]
pub(super) struct Longest(Vec<Slice>);

impl Longest {
    /// Number of slices that are kept.
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

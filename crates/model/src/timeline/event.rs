//! Events of one VM's threads.

use crate::timeline::exits::ExitReason;
use crate::vocab::{CgroupId, Comm};

/// An event. The events of one thread are in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, ns of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Thread id; 0 for an event without a thread.
    pub tid: u32,
    /// The CPU of the event.
    pub pcpu: u32,
    /// Lost events of the thread before this one.
    pub lost: Lost,
    /// Kind of the event.
    pub what: What,
}

/// Numbers of lost events of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Lost events about running and sleeping.
    pub states: u32,
    /// Lost events about its guest.
    pub exits: u32,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The thread starts running.
    On {
        /// The thread that ran on the CPU before.
        after: Peer,
    },
    /// The thread stops running.
    Off {
        /// The next state of the thread.
        into: Off,
        /// Whether the thread is throttled by its own quota, if the kernel tracks that
        /// per thread (v6.18 and later).
        stands: Option<bool>,
        /// The thread that runs on the CPU next.
        before: Peer,
    },
    /// The thread was woken up and is runnable.
    Woken {
        /// As for [`What::Off`].
        stands: Option<bool>,
    },
    /// The thread was moved to another CPU.
    Moved,
    /// The thread was created.
    Born {
        /// The process of the thread.
        process: u32,
        /// Its name at creation.
        name: Comm,
    },
    /// The vCPU left its guest (VM exit).
    Exit {
        /// Exit reason, if it could be read.
        reason: Option<ExitReason>,
        /// KVM's count of the vCPU's exits, the low 32 bits.
        counted: u32,
        /// Present limit of halt polling, ns.
        poll_ns: u32,
    },
    /// The vCPU entered its guest (VM entry).
    Entry,
    /// The exit is handled by the VMM.
    ToVmm,
    /// A halt ended.
    HaltEnd {
        /// Duration of the halt, ns.
        took_ns: u64,
        /// Whether the thread slept during the halt, and did not only poll.
        slept: bool,
    },
    /// The run queue of a cgroup on the CPU was throttled.
    Throttled(CgroupId),
    /// The run queue was unthrottled.
    Unthrottled(CgroupId),
}

impl What {
    /// Whether the event is an entry, an exit or a halt of the guest.
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(
            self,
            Self::Exit { .. } | Self::Entry | Self::ToVmm | Self::HaltEnd { .. }
        )
    }
}

/// State of a thread that stops running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// Still runnable.
    Runnable,
    /// Sleeping, interruptible.
    Sleeping,
    /// Sleeping, uninterruptible: usually waiting for a disk.
    Uninterruptible,
    /// Exited.
    Ended,
}

/// Another thread on the same CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peer {
    /// Thread id; 0 is the idle task.
    pub tid: u32,
    /// Its name.
    pub name: Comm,
}

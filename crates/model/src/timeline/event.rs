//! What the threads of one VM do, one event at a time.

use crate::timeline::exits::ExitReason;
use crate::vocab::{CgroupId, Comm};

/// Something that happened. A thread's events come in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, ns of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Whose it is; 0 for what is no thread's.
    pub tid: u32,
    /// The CPU that it is about.
    pub pcpu: u32,
    /// What was lost of the thread before.
    pub lost: Lost,
    /// What it is.
    pub what: What,
}

/// How many events of a thread were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Of its CPU and its sleep.
    pub states: u32,
    /// Of its guest.
    pub exits: u32,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It runs from now on.
    On {
        /// Who ran there before.
        after: Peer,
    },
    /// It runs no more.
    Off {
        /// What becomes of it.
        into: Off,
        /// Whether its own quota holds it back, where the kernel tells
        /// that of each thread (v6.18 and later).
        stands: Option<bool>,
        /// Who runs there now.
        before: Peer,
    },
    /// It slept and may run now.
    Woken {
        /// As for [`What::Off`].
        stands: Option<bool>,
    },
    /// Another CPU will run it.
    Moved,
    /// It is new.
    Born {
        /// The process that it is a thread of.
        process: u32,
        /// Its name as it began.
        name: Comm,
    },
    /// Its guest was left.
    Exit {
        /// Why, where that could be read.
        reason: Option<ExitReason>,
        /// What KVM has counted of the vCPU's exits, the low 32 bits.
        counted: u32,
        /// For how long KVM would poll in a halt now, ns.
        poll_ns: u32,
    },
    /// Its guest is entered.
    Entry,
    /// The VMM has to see to the exit.
    ToVmm,
    /// A halt ended.
    HaltEnd {
        /// How long it was, ns.
        took_ns: u64,
        /// Whether the thread slept in it, and did not only poll.
        slept: bool,
    },
    /// The run queue of a cgroup on the CPU is throttled.
    Throttled(CgroupId),
    /// It is set free.
    Unthrottled(CgroupId),
}

impl What {
    /// Whether it tells that the thread's guest is entered, left or halted.
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(
            self,
            Self::Exit { .. } | Self::Entry | Self::ToVmm | Self::HaltEnd { .. }
        )
    }
}

/// What becomes of a thread that runs no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// It would like to go on.
    Runnable,
    /// It waits for something.
    Sleeping,
    /// It waits and takes no signals: mostly for a disk.
    Uninterruptible,
    /// It has ended.
    Ended,
}

/// Another thread on the same CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its id; 0 is the idle task.
    pub tid: u32,
    /// Its name.
    pub name: Comm,
}

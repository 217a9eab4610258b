//! Context switches of threads.

use serde::{Deserialize, Serialize};

/// How often threads were put on a CPU, and were taken off it while runnable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switches {
    /// Number of times that the scheduler put the threads on a CPU (`sched_info.pcount`,
    /// the third field of `/proc/TID/schedstat`).
    pub timeslices: u64,
    /// Number of times that the threads left the CPU although they were runnable:
    /// preempted or throttled (`nivcsw`, `nonvoluntary_ctxt_switches` in
    /// `/proc/TID/status`).
    pub involuntary: u64,
}

impl Switches {
    /// Adds those of a thread; unknown ones add nothing.
    pub fn add(&mut self, more: Option<Self>) {
        let more = more.unwrap_or_default();
        self.timeslices = self.timeslices.saturating_add(more.timeslices);
        self.involuntary = self.involuntary.saturating_add(more.involuntary);
    }

    /// The increase since `then`.
    #[must_use]
    pub fn since(self, then: Self) -> Self {
        Self {
            timeslices: self.timeslices.saturating_sub(then.timeslices),
            involuntary: self.involuntary.saturating_sub(then.involuntary),
        }
    }
}

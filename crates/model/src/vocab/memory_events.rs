//! Events of a cgroup's memory.

use serde::{Deserialize, Serialize};

/// Number of values of [`MemoryEvents`].
pub const MEMORY_EVENTS: usize = 4;

/// Number of events of the memory of a cgroup and of those below it (`memory.events`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct MemoryEvents {
    /// The usage was over `memory.high`: the kernel slowed tasks and reclaimed memory.
    pub high: u64,
    /// The usage was about to exceed `memory.max`: the kernel reclaimed memory.
    pub max: u64,
    /// Memory could not be allocated within `memory.max`.
    pub oom: u64,
    /// A process was killed for lack of memory.
    pub oom_kill: u64,
}

impl MemoryEvents {
    /// All counts, with the names of their events.
    pub fn by_name(&self) -> [(&'static str, u64); MEMORY_EVENTS] {
        [
            ("high", self.high),
            ("max", self.max),
            ("oom", self.oom),
            ("oom_kill", self.oom_kill),
        ]
    }

    /// All counts, in the order of [`MemoryEvents::by_name`].
    pub fn values(&self) -> [u64; MEMORY_EVENTS] {
        self.by_name().map(|(_, count)| count)
    }
}

impl From<[u64; MEMORY_EVENTS]> for MemoryEvents {
    /// From all counts, in the order of [`MemoryEvents::by_name`].
    fn from([high, max, oom, oom_kill]: [u64; MEMORY_EVENTS]) -> Self {
        Self {
            high,
            max,
            oom,
            oom_kill,
        }
    }
}

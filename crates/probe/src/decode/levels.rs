//! Further values of cgroups that can have a limit.

use virtlens_abi as abi;
use virtlens_model::facts::LevelFact;
use virtlens_model::vocab::{CgroupId, MemoryEvents, Pressure};

use super::known;

/// Converts the values of a cgroup.
pub(super) fn level(record: &abi::record::LevelRecord) -> (CgroupId, LevelFact) {
    let fact = LevelFact {
        pressure: pressure(record),
        memory_events: memory_events(record),
    };
    (CgroupId(record.id), fact)
}

/// A kernel that can measure the time of interrupts does so only with a stable clock
/// (`sched_clock_irqtime`, `kernel/sched/cputime.c`). Its pressure is 0 for ever
/// otherwise, and with any network or disk it is not: 0 is unknown.
#[expect(clippy::indexing_slicing, reason = "constants, one for each state")]
fn pressure(record: &abi::record::LevelRecord) -> Option<Pressure> {
    let of = |state: u32| known(record.stalled_ns[state as usize]);
    of(abi::record::PRESSURE_CPU_SOME)?;
    Some(Pressure::from([
        of(abi::record::PRESSURE_CPU_SOME),
        of(abi::record::PRESSURE_CPU_FULL),
        of(abi::record::PRESSURE_MEMORY_SOME),
        of(abi::record::PRESSURE_MEMORY_FULL),
        of(abi::record::PRESSURE_IO_SOME),
        of(abi::record::PRESSURE_IO_FULL),
        of(abi::record::PRESSURE_IRQ_FULL).filter(|ns| *ns > 0),
    ]))
}

#[expect(clippy::indexing_slicing, reason = "constants, one for each event")]
fn memory_events(record: &abi::record::LevelRecord) -> Option<MemoryEvents> {
    let of = |event: u32| known(record.memory_events[event as usize]);
    Some(MemoryEvents {
        high: of(abi::record::MEMORY_EVENT_HIGH)?,
        max: of(abi::record::MEMORY_EVENT_MAX)?,
        oom: of(abi::record::MEMORY_EVENT_OOM)?,
        oom_kill: of(abi::record::MEMORY_EVENT_OOM_KILL)?,
    })
}

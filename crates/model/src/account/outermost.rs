//! Counters of the outermost level of a VM's path: its pod's cgroup, or its machine's.
//!
//! They belong to the cgroup, so they continue when the VMM is restarted in it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::account::known::Known;
use crate::account::meter::Meter;
use crate::facts::LevelFact;
use crate::vocab::{CgroupId, MEMORY_EVENTS, MemoryEvents, PRESSURES, Pressure};

/// The counters of one VM's outermost level: the increments of each cgroup while it was
/// the outermost one, and all of the first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutermostMeter {
    /// The cgroup that was read last.
    cgroup: Option<CgroupId>,
    path: Option<Arc<str>>,
    /// In the order of [`Pressure::values`].
    pressure: [Known<Meter>; PRESSURES],
    /// In the order of [`MemoryEvents::values`].
    memory_events: [Known<Meter>; MEMORY_EVENTS],
    /// Every count is in the saved state, because the cgroup may be removed.
    is_detached: bool,
    /// Restored from another agent, and not read yet by this one.
    #[serde(skip)]
    is_recalled: bool,
}

impl OutermostMeter {
    /// Reads the cgroup at `path`. Returns true if it is another one than before.
    ///
    /// Only later increments of the other cgroup count, unless it replaces the former one
    /// at its path: then it counts from zero.
    pub fn read(
        &mut self,
        cgroup: CgroupId,
        path: &Arc<str>,
        levels: &FxHashMap<CgroupId, LevelFact>,
    ) -> bool {
        let Some(now) = levels.get(&cgroup) else {
            return false;
        };
        let former = self.cgroup.filter(|before| *before != cgroup);
        if let Some(former) = former {
            self.leave(former, levels);
            let is_recreated = self.path.as_ref() == Some(path) && !levels.contains_key(&former);
            let start = if is_recreated {
                LevelFact::default()
            } else {
                *now
            };
            self.each(now, &start, Meter::switch_to);
        }
        let is_another = self.cgroup != Some(cgroup);
        if is_another {
            self.path = Some(Arc::clone(path));
            self.cgroup = Some(cgroup);
        }
        self.is_recalled = false;
        self.is_detached = false;
        self.each(now, now, |meter, value| {
            meter.read(value);
        });
        is_another
    }

    /// Keeps all counts, because the cgroup may be removed; if it is not, counting
    /// continues. Returns false if they are kept already.
    pub fn detach(&mut self) -> bool {
        if self.is_detached || self.cgroup.is_none() {
            return false;
        }
        self.is_detached = true;
        let keep = |meter: &mut Meter| meter.switch_to(meter.counted());
        let meters = self.pressure.iter_mut().chain(&mut self.memory_events);
        meters.for_each(|meter| meter.change(keep));
        true
    }

    /// Marks the meter as restored from another agent.
    pub fn recall(&mut self) {
        self.is_recalled = true;
    }

    /// The VM ended while no agent was running: the last counts of a removed cgroup are
    /// unknown. `is_left` returns whether a cgroup still exists.
    pub fn end_unseen(&mut self, is_left: impl Fn(CgroupId) -> bool) {
        if !self.is_detached && !self.cgroup.is_some_and(is_left) {
            *self = Self::default();
        }
    }

    /// The pressure; `None` if this agent has read none.
    pub fn pressure(&self) -> Option<Pressure> {
        let total = |meter: &Known<Meter>| meter.get().map(Meter::total);
        let totals = self.pressure.each_ref().map(total);
        let is_known = totals.iter().any(Option::is_some);
        is_known.then(|| totals.into())
    }

    /// Events of its memory; `None` if this agent has read none.
    pub fn memory_events(&self) -> Option<MemoryEvents> {
        let total = |meter: &Known<Meter>| meter.get().map(Meter::total);
        let [high, max, oom, oom_kill] = self.memory_events.each_ref().map(total);
        Some([high?, max?, oom?, oom_kill?].into())
    }

    /// Reads the former cgroup for the last time. If it was removed while no agent was
    /// running, its last counts are unknown, and all counters restart.
    fn leave(&mut self, former: CgroupId, levels: &FxHashMap<CgroupId, LevelFact>) {
        if let Some(last) = levels.get(&former) {
            self.each(last, last, |meter, value| {
                meter.read(value);
            });
        } else if self.is_recalled && !self.is_detached {
            let path = self.path.take();
            *self = Self {
                path,
                ..Self::default()
            };
        }
    }

    /// Changes the meter of each value that `known` has, with its value in `values`, or 0.
    fn each(&mut self, known: &LevelFact, values: &LevelFact, change: impl Fn(&mut Meter, u64)) {
        let meters = self.pressure.iter_mut().chain(&mut self.memory_events);
        let pairs = all(known).zip(all(values));
        for (meter, (known, value)) in meters.zip(pairs) {
            if known.is_some() {
                change(meter.now(), value.unwrap_or(0));
            }
        }
    }
}

/// All values of a level, in the order of the meters.
fn all(level: &LevelFact) -> impl Iterator<Item = Option<u64>> {
    let events = level.memory_events.map(|events| events.values());
    let events = events.map_or([None; MEMORY_EVENTS], |values| values.map(Some));
    let stalls = level.pressure.unwrap_or_default().values();
    stalls.into_iter().chain(events)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustc_hash::FxHashMap;

    use super::OutermostMeter;
    use crate::facts::LevelFact;
    use crate::vocab::{CgroupId, Pressure};

    const POD: CgroupId = CgroupId(30);
    const OTHER: CgroupId = CgroupId(31);

    fn fact(ns: u64) -> LevelFact {
        let mut values = [Some(ns); 7];
        values[1] = None;
        LevelFact {
            pressure: Some(Pressure::from(values)),
            memory_events: Some([ns, 1, 2, 3].into()),
        }
    }

    fn read(meter: &mut OutermostMeter, levels: &[(CgroupId, u64)], path: &str) -> u64 {
        let facts = levels.iter().map(|(id, ns)| (*id, fact(*ns)));
        let facts: FxHashMap<_, _> = facts.collect();
        meter.read(levels[0].0, &Arc::from(path), &facts);
        let shown = meter.pressure().expect("it was read");
        assert_eq!(shown.cpu.full_ns, None, "a state that the kernel lacks");
        assert_eq!(shown.cpu.some_ns, shown.io.full_ns);
        let events = meter.memory_events().expect("they were read");
        assert_eq!(shown.cpu.some_ns, Some(events.high));
        shown.cpu.some_ns.expect("it is known")
    }

    /// The meter as the next agent restores it.
    fn handed_over(meter: &OutermostMeter) -> OutermostMeter {
        let text = serde_json::to_string(meter).expect("it is plain data");
        let mut next: OutermostMeter = serde_json::from_str(&text).expect("it was written");
        next.recall();
        assert_eq!(next.pressure(), None, "the next agent has not read it");
        next
    }

    #[test]
    fn cgroup_counts_from_its_creation() {
        let mut meter = OutermostMeter::default();
        assert_eq!(meter.pressure(), None);
        assert!(!meter.read(POD, &"/a".into(), &FxHashMap::default()));
        assert_eq!(meter.pressure(), None, "v1 has no pressure");
        assert_eq!(read(&mut meter, &[(POD, 70)], "/a"), 70);
        assert_eq!(read(&mut meter, &[(POD, 90)], "/a"), 90);
    }

    #[test]
    fn recreated_cgroup_counts_from_zero_and_another_from_its_value() {
        let mut meter = OutermostMeter::default();
        read(&mut meter, &[(POD, 70)], "/a");
        assert_eq!(read(&mut meter, &[(OTHER, 5)], "/a"), 75);
        let moved = read(&mut meter, &[(POD, 1000), (OTHER, 9)], "/b");
        assert_eq!(moved, 79, "the former one is read once more");
        assert_eq!(read(&mut meter, &[(POD, 1001)], "/b"), 80);
    }

    #[test]
    fn ended_vm_keeps_counts_and_its_successor_continues() {
        let mut meter = OutermostMeter::default();
        assert!(!meter.detach(), "there is nothing to keep");
        read(&mut meter, &[(POD, 70)], "/a");
        assert!(meter.detach());
        assert!(!meter.detach(), "they are kept already");
        let shown = meter.pressure().expect("it was read");
        assert_eq!(shown.cpu.some_ns, Some(70));
        assert_eq!(read(&mut meter, &[(POD, 80)], "/a"), 80);
        meter.detach();
        assert_eq!(read(&mut meter, &[(OTHER, 3)], "/a"), 83);
    }

    #[test]
    fn next_agent_continues_unless_counts_are_unknown() {
        let mut meter = OutermostMeter::default();
        read(&mut meter, &[(POD, 70)], "/a");
        read(&mut meter, &[(OTHER, 30), (POD, 70)], "/b");
        assert_eq!(read(&mut meter, &[(OTHER, 40)], "/b"), 80);
        let mut next = handed_over(&meter);
        assert_eq!(read(&mut next, &[(OTHER, 50)], "/b"), 90);

        let mut next = handed_over(&meter);
        assert_eq!(read(&mut next, &[(POD, 900)], "/c"), 0, "it restarts");

        let mut next = handed_over(&meter);
        next.end_unseen(|_| false);
        assert_eq!(read(&mut next, &[(POD, 900)], "/c"), 900);

        meter.detach();
        let mut next = handed_over(&meter);
        next.end_unseen(|_| false);
        assert_eq!(read(&mut next, &[(POD, 900)], "/c"), 80);
        assert_eq!(read(&mut next, &[(POD, 907)], "/c"), 87);
    }
}

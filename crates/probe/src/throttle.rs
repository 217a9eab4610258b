//! Throttling by CPU quotas: the maps `levels` and `throttle_hits`.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{HitFact, ThrottlingFacts};
use virtlens_model::vocab::{CgroupId, Owner};
use zerocopy::{FromZeros, IntoBytes};

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::unchanged::Unchanged;
use crate::{Error, decode};

/// Reads and writes these maps.
#[derive(Default)]
pub(crate) struct Throttle {
    levels: FxHashSet<CgroupId>,
    level_batch: Batch<u64, abi::map::Level>,
    hit_batch: Batch<abi::map::ThreadClass, u64>,
    facts: Unchanged<ThrottlingFacts>,
    /// Number of times that a level did not fit in the map.
    lost: u64,
    /// Entries of `throttle_hits` when it was last read.
    pub(crate) hit_entries: u64,
}

impl Throttle {
    /// Number of tracked cgroups.
    pub(crate) fn levels(&self) -> u64 {
        self.levels.len() as u64
    }

    /// Number of times that a level did not fit in the map, so that its throttling is not
    /// tracked.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes over the levels of a former agent. An older version left it to the programs
    /// to create the entry of `walls`, so it is created here if missing.
    pub(crate) fn adopt(&mut self, maps: &Maps) -> Result<(), Error> {
        let levels = &mut self.levels;
        maps.each("levels", &mut self.level_batch, |id, _| {
            levels.insert(CgroupId(*id));
        })?;
        let mut levels = self.levels.iter();
        levels.try_for_each(|level| maps.insert_zeros("walls", level.0.as_bytes()))
    }

    /// Sets the tracked cgroups; true if some are new. The counters of a cgroup start
    /// when it is first set.
    pub(crate) fn set_levels(
        &mut self,
        maps: &Maps,
        levels: FxHashSet<CgroupId>,
    ) -> Result<bool, Error> {
        self.facts.forget();
        // One by one: if a level fails, those that already count are not started again.
        let gone: Vec<CgroupId> = self.levels.difference(&levels).copied().collect();
        for gone in gone {
            maps.delete("levels", gone.0.as_bytes())?;
            maps.delete("walls", gone.0.as_bytes())?;
            self.levels.remove(&gone);
        }
        let mut has_new = false;
        for new in levels {
            if self.levels.contains(&new) {
                continue;
            }
            match begin_level(maps, new) {
                Ok(()) => {}
                // The other levels are tracked nevertheless.
                Err(error) if error.is_full() => {
                    self.lost += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.levels.insert(new);
            has_new = true;
        }
        Ok(has_new)
    }

    /// Returns all counters. The maps are read only if they have changed.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<ThrottlingFacts, Error> {
        let facts = self.facts.or_read(maps, abi::map::CHANGE_THROTTLE, || {
            let mut facts = ThrottlingFacts::default();
            maps.each("levels", &mut self.level_batch, |id, level| {
                facts.cgroups.insert(CgroupId(*id), decode::throttle(level));
            })?;
            maps.each("throttle_hits", &mut self.hit_batch, |class, hits| {
                facts.hits.push(HitFact {
                    class: decode::class(class),
                    hits: *hits,
                });
            })?;
            Ok(facts)
        })?;
        self.hit_entries = facts.hits.len() as u64;
        Ok(facts)
    }

    /// Recycles the facts of the last reading: the next one returns them if nothing has
    /// changed.
    pub(crate) fn recycle(&mut self, facts: ThrottlingFacts) {
        self.facts.recycle(facts);
    }

    /// Removes the hits of former owners.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        self.facts.forget();
        let mut keys = Vec::new();
        maps.each("throttle_hits", &mut self.hit_batch, |class, _| {
            if gone.contains(&decode::owner(class.owner)) {
                keys.push(*class);
            }
        })?;
        let delete = |key: &abi::map::ThreadClass| maps.delete("throttle_hits", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

/// Starts a level. The entry of `walls` is created first, because a program that finds
/// the level needs it.
fn begin_level(maps: &Maps, level: CgroupId) -> Result<(), Error> {
    let (key, fresh) = (level.0, abi::map::Level::new_zeroed());
    maps.insert_zeros("walls", key.as_bytes())?;
    let begun = maps.update("levels", key.as_bytes(), fresh.as_bytes());
    if begun.is_err() {
        // Otherwise the entry would never be deleted.
        maps.delete("walls", key.as_bytes())?;
    }
    begun
}

//! When quotas ran out: the maps `levels` and `throttle_hits`.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{HitFact, ThrottlingFacts};
use virtlens_model::vocab::{CgroupId, Owner};
use zerocopy::{FromZeros, IntoBytes};

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::{Error, decode};

/// Reads and writes those maps.
#[derive(Default)]
pub(crate) struct Throttle {
    levels: FxHashSet<CgroupId>,
    level_batch: Batch<u64, abi::Level>,
    hit_batch: Batch<abi::ThreadClass, u64>,
    /// How often a level found no room in the map.
    lost: u64,
    /// Entries of `throttle_hits` when it was last read.
    pub(crate) hit_entries: u64,
}

impl Throttle {
    /// How many cgroups are followed.
    pub(crate) fn levels(&self) -> u64 {
        self.levels.len() as u64
    }

    /// How often a level found no room in the map, so that its throttling was not followed.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes up what an agent had set. One of an older version left it to the programs to
    /// make the entry of `walls`.
    pub(crate) fn adopt(&mut self, maps: &Maps) -> Result<(), Error> {
        let levels = &mut self.levels;
        maps.each("levels", &mut self.level_batch, |id, _| {
            levels.insert(CgroupId(*id));
        })?;
        let mut levels = self.levels.iter();
        levels.try_for_each(|level| maps.insert_zeros("walls", level.0.as_bytes()))
    }

    /// Sets which cgroups are followed; true if some are new. What is counted of one
    /// begins when it is first set.
    pub(crate) fn set_levels(
        &mut self,
        maps: &Maps,
        levels: FxHashSet<CgroupId>,
    ) -> Result<bool, Error> {
        // One by one: a level whose counting began is not begun anew where another fails.
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
                // The others are followed all the same.
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

    /// All that was counted.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<ThrottlingFacts, Error> {
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
        self.hit_entries = facts.hits.len() as u64;
        Ok(facts)
    }

    /// Drops the hits of owners that are gone.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        let mut keys = Vec::new();
        maps.each("throttle_hits", &mut self.hit_batch, |class, _| {
            if gone.contains(&decode::owner(class.owner)) {
                keys.push(*class);
            }
        })?;
        let delete = |key: &abi::ThreadClass| maps.delete("throttle_hits", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

/// The entry of `walls` is there first: a program that finds the level finds it, too.
fn begin_level(maps: &Maps, level: CgroupId) -> Result<(), Error> {
    let (key, fresh) = (level.0, abi::Level::new_zeroed());
    maps.insert_zeros("walls", key.as_bytes())?;
    let begun = maps.update("levels", key.as_bytes(), fresh.as_bytes());
    if begun.is_err() {
        // Or nobody would ever delete it.
        maps.delete("walls", key.as_bytes())?;
    }
    begun
}

//! What threads that ended had used: the map that `on_exit` and `on_free` fill.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{Owner, RetiredFact};
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::sys::Batch;
use crate::{Error, decode};

/// Reads that map.
#[derive(Default)]
pub(crate) struct Retired {
    batch: Batch<abi::ThreadClass, abi::Retired>,
    /// Entries when it was last read.
    pub(crate) entries: u64,
}

impl Retired {
    /// All that is in it.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<Vec<RetiredFact>, Error> {
        let mut facts = Vec::with_capacity(usize::try_from(self.entries).unwrap_or(0));
        maps.each("retired", &mut self.batch, |key, sum| {
            facts.push(decode::retired(key, sum));
        })?;
        self.entries = facts.len() as u64;
        Ok(facts)
    }

    /// Drops what threads of owners that are gone had used.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        let mut keys = Vec::new();
        maps.each("retired", &mut self.batch, |key, _| {
            if gone.contains(&decode::owner(key.owner)) {
                keys.push(*key);
            }
        })?;
        let delete = |key: &abi::ThreadClass| maps.delete("retired", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

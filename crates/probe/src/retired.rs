//! The times of exited threads, and KVM's counters of their vCPUs: the maps that
//! `on_exit` and `on_free` fill.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{EndedVcpuFact, RetiredFact};
use virtlens_model::vocab::Owner;
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::unchanged::Unchanged;
use crate::{Error, decode};

/// Reads these maps.
#[derive(Default)]
pub(crate) struct Retired {
    batch: Batch<abi::map::ThreadClass, abi::map::Retired>,
    facts: Unchanged<Vec<RetiredFact>>,
    /// Entries of `retired` when it was last read.
    pub(crate) entries: u64,
    vcpus: Batch<abi::map::VcpuKey, abi::record::VcpuRecord>,
    ended_vcpus: Unchanged<Vec<EndedVcpuFact>>,
    pub(crate) vcpu_entries: u64,
}

impl Retired {
    /// Returns all entries of `retired`. The map is read only if it has changed.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<Vec<RetiredFact>, Error> {
        let facts = self.facts.or_read(maps, abi::map::CHANGE_RETIRED, || {
            let mut facts = Vec::with_capacity(usize::try_from(self.entries).unwrap_or(0));
            maps.each("retired", &mut self.batch, |key, sum| {
                facts.push(decode::retired(key, sum));
            })?;
            Ok(facts)
        })?;
        self.entries = facts.len() as u64;
        Ok(facts)
    }

    /// Returns the vCPUs whose threads have exited. The map is read only if it has changed.
    pub(crate) fn vcpus(&mut self, maps: &Maps) -> Result<Vec<EndedVcpuFact>, Error> {
        let kind = abi::map::CHANGE_RETIRED;
        let facts = self.ended_vcpus.or_read(maps, kind, || {
            let mut facts = Vec::new();
            maps.each("ended_vcpus", &mut self.vcpus, |key, record| {
                facts.extend(decode::ended_vcpu(key, record));
            })?;
            Ok(facts)
        })?;
        self.vcpu_entries = facts.len() as u64;
        Ok(facts)
    }

    /// Recycles the facts of the last reading: the next one returns them if nothing has
    /// changed.
    pub(crate) fn recycle(&mut self, retired: Vec<RetiredFact>, vcpus: Vec<EndedVcpuFact>) {
        self.facts.recycle(retired);
        self.ended_vcpus.recycle(vcpus);
    }

    /// Removes the times of former owners' threads.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        // First, because a failed call may have deleted some entries.
        self.facts.forget();
        self.ended_vcpus.forget();
        let mut keys = Vec::new();
        maps.each("retired", &mut self.batch, |key, _| {
            if gone.contains(&decode::owner(key.owner)) {
                keys.push(*key);
            }
        })?;
        let delete = |key: &abi::map::ThreadClass| maps.delete("retired", key.as_bytes());
        keys.iter().try_for_each(delete)?;
        self.forget_vcpus(maps, gone)
    }

    fn forget_vcpus(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        let mut keys = Vec::new();
        maps.each("ended_vcpus", &mut self.vcpus, |key, _| {
            if gone.contains(&decode::owner(key.owner)) {
                keys.push(*key);
            }
        })?;
        let delete = |key: &abi::map::VcpuKey| maps.delete("ended_vcpus", key.as_bytes());
        keys.iter().try_for_each(delete)
    }
}

//! The times of exited threads, and KVM's counters of their vCPUs: the maps that
//! `on_exit` and `on_free` fill.

use rustc_hash::FxHashSet;
use virtlens_abi as abi;
use virtlens_model::facts::{EndedVcpuFact, RetiredFact};
use virtlens_model::vocab::Owner;
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::{Error, decode};

/// Reads these maps.
#[derive(Default)]
pub(crate) struct Retired {
    batch: Batch<abi::map::ThreadClass, abi::map::Retired>,
    /// Entries of `retired` when it was last read.
    pub(crate) entries: u64,
    /// Number of threads that had exited by then.
    threads: u64,
    vcpus: Batch<abi::map::VcpuKey, abi::record::VcpuRecord>,
    ended_vcpus: Vec<EndedVcpuFact>,
    /// Number of exited threads when the vCPUs were last read.
    vcpus_as_of: u64,
    pub(crate) vcpu_entries: u64,
}

impl Retired {
    /// Returns all entries of `retired`.
    pub(crate) fn read(&mut self, maps: &Maps) -> Result<Vec<RetiredFact>, Error> {
        let mut facts = Vec::with_capacity(usize::try_from(self.entries).unwrap_or(0));
        maps.each("retired", &mut self.batch, |key, sum| {
            facts.push(decode::retired(key, sum));
        })?;
        self.entries = facts.len() as u64;
        self.threads = facts.iter().map(|fact| fact.threads).sum();
        Ok(facts)
    }

    /// Returns the vCPUs whose threads have exited. The map is read only if more threads
    /// have exited.
    pub(crate) fn vcpus(&mut self, maps: &Maps) -> Result<Vec<EndedVcpuFact>, Error> {
        if self.vcpus_as_of != self.threads {
            let facts = &mut self.ended_vcpus;
            facts.clear();
            maps.each("ended_vcpus", &mut self.vcpus, |key, record| {
                facts.extend(decode::ended_vcpu(key, record));
            })?;
            self.vcpu_entries = facts.len() as u64;
            self.vcpus_as_of = self.threads;
        }
        Ok(self.ended_vcpus.clone())
    }

    /// Removes the times of former owners' threads.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<Owner>) -> Result<(), Error> {
        // Reset first: the number of exited threads decreases from here on, also if this
        // call fails, and then no longer shows whether the vCPUs changed.
        self.vcpus_as_of = u64::MAX;
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
        keys.iter().try_for_each(delete)?;
        self.ended_vcpus
            .retain(|fact| !gone.contains(&Owner::Vm(fact.vm)));
        self.vcpu_entries = self.ended_vcpus.len() as u64;
        Ok(())
    }
}

//! The maps of the loaded object, by name.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;

use zerocopy::FromBytes;

use crate::Error;
use crate::sys::map::{Batch, Map};

/// The maps that the agent reads or writes.
const NAMES: [&str; 20] = [
    "active",
    "book",
    "changes",
    "control",
    "drops",
    "ended_vcpus",
    "places",
    "residency",
    "retired",
    STRAYS,
    "vms",
    "vm_mms",
    "vhost_fields",
    "watched",
    "levels",
    "throttle_hits",
    "walls",
    "ram_buckets",
    "ram",
    "discards",
];

/// The thread states, on kernels with task storage.
pub(crate) const STATES: &str = "marks";

/// The thread states, on kernels without it.
pub(crate) const STATES_HASH: &str = "marks_hash";

/// Processes of which single threads are in a watched cgroup. Agents whose pass does not walk
/// keep it, so that they leave the pins of those that do.
pub(crate) const STRAYS: &str = "strays";

/// These maps. The error of a failed operation names the map.
pub(crate) struct Maps(HashMap<&'static str, Map>);

impl Maps {
    /// Takes the maps of a loaded object.
    pub(crate) fn of(mut loaded: BTreeMap<String, OwnedFd>) -> Result<Self, Error> {
        let mut take = |name| {
            let map = loaded.remove(name).ok_or(Error::Missing(name))?;
            Map::of(map).map_err(failed(name))
        };
        let mut maps = HashMap::new();
        for name in NAMES {
            maps.insert(name, take(name)?);
        }
        match take(STATES_HASH) {
            Err(Error::Missing(_)) => {}
            states => drop(maps.insert(STATES_HASH, states?)),
        }
        Ok(Self(maps))
    }

    /// Maximum number of entries of a map.
    pub(crate) fn max_entries(&self, map: &'static str) -> u32 {
        self.0[map].info().max_entries
    }

    /// Number of entries of a hash, if it exists.
    pub(crate) fn count(&self, map: &'static str) -> Option<u64> {
        let count = self.0.get(map)?.count();
        count.ok().map(u64::from)
    }

    /// Deletes all entries of a hash, if it exists.
    pub(crate) fn clear(&self, map: &'static str) -> Result<(), Error> {
        let map_of = self.0.get(map);
        map_of.map_or(Ok(()), |one| one.clear().map_err(failed(map)))
    }

    /// The error of a full map, as the kernel reports it for a hash.
    pub(crate) fn is_full(map: &'static str) -> Error {
        failed(map)(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// Writes one entry.
    pub(crate) fn update(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.0[map].update(key, value).map_err(failed(map))
    }

    /// Creates an entry of zeros, unless it exists.
    pub(crate) fn insert_zeros(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        self.0[map].insert_zeros(key).map_err(failed(map))
    }

    /// Deletes one entry, if it exists.
    pub(crate) fn delete(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        self.0[map].delete(key).map_err(failed(map))
    }

    /// Reads one entry, if it exists.
    pub(crate) fn get<V: FromBytes>(
        &self,
        map: &'static str,
        key: &[u8],
    ) -> Result<Option<V>, Error> {
        self.0[map].get(key).map_err(failed(map))
    }

    /// Sums a counter of an array over all CPUs; `None` if it cannot be read.
    pub(crate) fn sum(&self, map: &'static str, key: &[u8]) -> Option<u64> {
        self.0[map].sum(key).ok()
    }

    /// Passes every entry of a hash map to `each`.
    pub(crate) fn each<K, V>(
        &self,
        map: &'static str,
        batch: &mut Batch<K, V>,
        each: impl FnMut(&K, &V),
    ) -> Result<(), Error>
    where
        K: FromBytes + Copy,
        V: FromBytes + Copy,
    {
        batch
            .read(&self.0[map], usize::MAX, each)
            .map_err(failed(map))
    }

    /// Passes the first `count` entries of an array to `each`.
    pub(crate) fn first<V: FromBytes + Copy>(
        &self,
        map: &'static str,
        count: usize,
        batch: &mut Batch<u32, V>,
        each: impl FnMut(&u32, &V),
    ) -> Result<(), Error> {
        batch.read(&self.0[map], count, each).map_err(failed(map))
    }
}

fn failed(map: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Map { map, cause }
}

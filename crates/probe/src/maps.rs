//! The maps of the loaded object, by name.

use std::collections::HashMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use zerocopy::FromBytes;

use crate::Error;
use crate::sys::Batch;

/// The maps that the agent reads or writes.
const NAMES: [&str; 17] = [
    "active",
    "book",
    "control",
    "drops",
    "ended_vcpus",
    "places",
    "residency",
    "retired",
    "vms",
    "vm_mms",
    "watched",
    "levels",
    "throttle_hits",
    "walls",
    "ram_buckets",
    "ram",
    "discards",
];

/// Those maps. An operation that fails names its map.
pub(crate) struct Maps(HashMap<&'static str, MapHandle>);

impl Maps {
    /// Takes hold of the maps of a loaded object.
    pub(crate) fn of(object: &Object) -> Result<Self, Error> {
        let handle = |name| {
            let map = object
                .maps()
                .find(|map| map.name() == name)
                .ok_or(Error::Missing(name))?;
            MapHandle::try_from(&map).map_err(failed(name))
        };
        let pairs = NAMES.into_iter().map(|name| Ok((name, handle(name)?)));
        Ok(Self(pairs.collect::<Result<_, Error>>()?))
    }

    /// How many entries a map can hold.
    pub(crate) fn max_entries(&self, map: &'static str) -> u32 {
        self.0[map].max_entries()
    }

    /// The error of a map that has no more room, as the kernel would tell it of a
    /// hash.
    pub(crate) fn is_full(map: &'static str) -> Error {
        let cause = std::io::Error::from_raw_os_error(libc::E2BIG);
        failed(map)(cause.into())
    }

    /// Writes one entry.
    pub(crate) fn update(&self, map: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.0[map]
            .update(key, value, MapFlags::ANY)
            .map_err(failed(map))
    }

    /// Deletes one entry, if it is there.
    pub(crate) fn delete(&self, map: &'static str, key: &[u8]) -> Result<(), Error> {
        match self.0[map].delete(key) {
            Err(cause) if cause.kind() != libbpf_rs::ErrorKind::NotFound => Err(failed(map)(cause)),
            _ => Ok(()),
        }
    }

    /// One entry, if it is there.
    pub(crate) fn get<V: FromBytes>(&self, map: &'static str, key: &[u8]) -> Option<V> {
        let bytes = self.0[map].lookup(key, MapFlags::ANY).ok().flatten()?;
        V::read_from_bytes(&bytes).ok()
    }

    /// One counter of an array, over all CPUs.
    pub(crate) fn sum(&self, map: &'static str, key: &[u8]) -> u64 {
        let counts = self.0[map].lookup_percpu(key, MapFlags::ANY);
        let one = |bytes: &Vec<u8>| u64::read_from_bytes(bytes).unwrap_or(0);
        counts
            .ok()
            .flatten()
            .unwrap_or_default()
            .iter()
            .map(one)
            .sum()
    }

    /// Shows every entry of a hash map.
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
            .map_err(|cause| failed(map)(cause.into()))
    }

    /// Shows the first `count` entries of an array.
    pub(crate) fn first<V: FromBytes + Copy>(
        &self,
        map: &'static str,
        count: usize,
        batch: &mut Batch<u32, V>,
        each: impl FnMut(&u32, &V),
    ) -> Result<(), Error> {
        batch
            .read(&self.0[map], count, each)
            .map_err(|cause| failed(map)(cause.into()))
    }
}

fn failed(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |cause| Error::Map { map, cause }
}

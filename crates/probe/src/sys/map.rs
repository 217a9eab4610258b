//! Operations on maps, by their descriptors.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use zerocopy::FromBytes;

use super::{Command, address, bpf, info, number, possible_cpus};

/// Number of entries per batch.
const BATCH: usize = 2048;

/// Properties of a map (the first fields of `struct bpf_map_info`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MapInfo {
    /// `enum bpf_map_type`.
    pub(crate) kind: u32,
    id: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    flags: u32,
}

impl MapInfo {
    /// Whether each element has one value per CPU: `BPF_MAP_TYPE_PERCPU_HASH`,
    /// `…_PERCPU_ARRAY`, `…_LRU_PERCPU_HASH`, `…_PERCPU_CGROUP_STORAGE`.
    fn is_per_cpu(self) -> bool {
        [5, 6, 10, 21].contains(&self.kind)
    }
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Elements {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// A map. Operations with a key or value of the wrong size, or with a single value for a
/// per-CPU map, fail with [`io::ErrorKind::InvalidInput`].
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    info: MapInfo,
}

impl Map {
    /// Takes the map with this descriptor.
    ///
    /// The error of the kernel: the descriptor is not a map.
    pub(crate) fn of(fd: OwnedFd) -> io::Result<Self> {
        let mut what = MapInfo::default();
        info(fd.as_fd(), &mut what)?;
        Ok(Self { fd, info: what })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the properties of the map.
    pub(crate) fn info(&self) -> MapInfo {
        self.info
    }

    /// Reads an element, if it exists.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn get<V: FromBytes>(&self, key: &[u8]) -> io::Result<Option<V>> {
        if self.info.is_per_cpu() {
            return Err(wrong_size());
        }
        let mut value = vec![0; self.info.value_size as usize];
        let found = self.lookup(key, &mut value)?;
        let read = |value: &Vec<u8>| V::read_from_bytes(value).map_err(|_| wrong_size());
        found.then(|| read(&value)).transpose()
    }

    /// Sums a counter of a per-CPU map over all CPUs.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn sum(&self, key: &[u8]) -> io::Result<u64> {
        if !self.info.is_per_cpu() || self.info.value_size as usize != size_of::<u64>() {
            return Err(wrong_size());
        }
        let mut values = vec![0; possible_cpus()? * size_of::<u64>()];
        self.lookup(key, &mut values)?;
        let (values, _) = values.as_chunks();
        Ok(values.iter().copied().map(u64::from_ne_bytes).sum())
    }

    /// `value` must have space for all bytes that the kernel writes.
    fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        let mut attributes = self.element(key)?;
        attributes.value = address(value.as_mut_ptr());
        match bpf(Command::MapLookup, &mut attributes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Writes an element.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.info.is_per_cpu() || value.len() != self.info.value_size as usize {
            return Err(wrong_size());
        }
        let mut attributes = self.element(key)?;
        attributes.value = address(value.as_ptr());
        bpf(Command::MapUpdate, &mut attributes).map(drop)
    }

    /// Creates an element of zeros, unless it exists.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn insert_zeros(&self, key: &[u8]) -> io::Result<()> {
        // BPF_NOEXIST, include/uapi/linux/bpf.h
        const NO_EXIST: u64 = 1;
        if self.info.is_per_cpu() {
            return Err(wrong_size());
        }
        let value = vec![0u8; self.info.value_size as usize];
        let mut attributes = self.element(key)?;
        attributes.value = address(value.as_ptr());
        attributes.flags = NO_EXIST;
        match bpf(Command::MapUpdate, &mut attributes) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes an element, if it exists.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<()> {
        let mut attributes = self.element(key)?;
        match bpf(Command::MapDelete, &mut attributes) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Counts the elements of a hash by their keys, with one call per key: there are at
    /// most some 10 000 thread states, and reading values would copy more. Elements that are
    /// added or deleted meanwhile may be missing or counted twice.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn count(&self) -> io::Result<u32> {
        let mut key = vec![0; self.info.key_size as usize];
        // One buffer for both keys: the kernel reads the key before it writes the next
        // one (map_get_next_key, kernel/bpf/syscall.c).
        let place = address(key.as_mut_ptr());
        // After a deleted key the kernel starts again at the first one
        // (htab_map_get_next_key, kernel/bpf/hashtab.c), so the loop is limited to the
        // size of the map.
        for count in 0..self.info.max_entries {
            let mut attributes = Element {
                map: number(self.fd.as_fd()),
                key: if count == 0 { 0 } else { place },
                value: place,
                ..Element::default()
            };
            match bpf(Command::MapNextKey, &mut attributes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(count),
                other => drop(other?),
            }
        }
        Ok(self.info.max_entries)
    }

    /// Deletes all elements of a hash, with two calls per element. Elements that are added
    /// meanwhile may stay.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut key = vec![0; self.info.key_size as usize];
        for _ in 0..self.info.max_entries {
            let mut attributes = Element {
                map: number(self.fd.as_fd()),
                // Without a key the kernel returns the first one.
                key: 0,
                value: address(key.as_mut_ptr()),
                ..Element::default()
            };
            match bpf(Command::MapNextKey, &mut attributes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => drop(other?),
            }
            self.delete(&key)?;
        }
        Ok(())
    }

    fn element(&self, key: &[u8]) -> io::Result<Element> {
        if key.len() != self.info.key_size as usize {
            return Err(wrong_size());
        }
        Ok(Element {
            map: number(self.fd.as_fd()),
            key: address(key.as_ptr()),
            ..Element::default()
        })
    }
}

fn wrong_size() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "entry size differs from the expected one",
    )
}

/// Buffers for a batch of a map's entries, reused by each reading.
pub(crate) struct Batch<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for Batch<K, V> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<K, V> Batch<K, V>
where
    K: FromBytes + Copy,
    V: FromBytes + Copy,
{
    /// Reads the first `limit` entries of a map, in the map's order (since v5.6:
    /// `BPF_MAP_LOOKUP_BATCH`).
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn read(
        &mut self,
        map: &Map,
        limit: usize,
        mut each: impl FnMut(&K, &V),
    ) -> io::Result<()> {
        let sizes = (map.info.key_size as usize, map.info.value_size as usize);
        if map.info.is_per_cpu() || sizes != (size_of::<K>(), size_of::<V>()) {
            return Err(wrong_size());
        }
        let mut left = limit;
        if self.keys.is_empty() {
            self.keys = vec![K::new_zeroed(); BATCH];
            self.values = vec![V::new_zeroed(); BATCH];
        }
        // A hash map's cursor is a bucket number, an array's a key.
        let mut cursor = [0u64; 16];
        const { assert!(size_of::<K>() <= size_of::<[u64; 16]>()) };
        let mut started = false;
        while left > 0 {
            let place = address(cursor.as_mut_ptr());
            let mut attributes = Elements {
                in_batch: if started { place } else { 0 },
                out_batch: place,
                keys: address(self.keys.as_mut_ptr()),
                values: address(self.values.as_mut_ptr()),
                count: u32::try_from(self.keys.len().min(left)).unwrap_or(u32::MAX),
                map: number(map.fd.as_fd()),
                ..Elements::default()
            };
            let result = bpf(Command::MapLookupBatch, &mut attributes);
            let error = result.err().and_then(|error| error.raw_os_error());
            let end = error == Some(libc::ENOENT);
            match error {
                // One bucket has more entries than fit: double the buffers.
                Some(libc::ENOSPC) => {
                    let more = self.keys.len() * 2;
                    self.keys = vec![K::new_zeroed(); more];
                    self.values = vec![V::new_zeroed(); more];
                    continue;
                }
                Some(code) if !end => return Err(io::Error::from_raw_os_error(code)),
                _ => {}
            }
            let count = attributes.count as usize;
            let pairs = self.keys.iter().zip(&self.values).take(count);
            pairs.for_each(|(k, v)| each(k, v));
            left = left.saturating_sub(count);
            if end {
                break;
            }
            started = true;
        }
        Ok(())
    }
}

//! Allocation of the entries of the arrays `ram_buckets`, `ram` and `discards` to VMs.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::vocab::VmKey;

/// Allocates entries of `ram` and `discards`, and maintains the buckets.
///
/// Programs may be reading an entry of `ram` while its VM's RAM changes: the new location
/// is written to another entry, and the old entry is the last one to be reused. The start
/// time of the VMM in an entry identifies its VM.
pub(super) struct Places {
    free: VecDeque<u32>,
    buckets: FxHashMap<u32, abi::memory::RamBucket>,
    /// The VM of each entry of `discards`.
    discards: Vec<Option<VmKey>>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            free: (0..abi::memory::RAM_MAX).collect(),
            buckets: FxHashMap::default(),
            discards: Vec::new(),
        }
    }
}

impl Places {
    /// Takes over the map `ram_buckets` and the entries of `ram` to which it refers.
    /// Returns the VMs with their entries of `ram`.
    pub(super) fn adopt(
        &mut self,
        buckets: Vec<(u32, abi::memory::RamBucket)>,
        ram_of: impl Fn(u32) -> Option<abi::memory::Ram>,
    ) -> Vec<(VmKey, u32)> {
        let mut vms = Vec::new();
        for (index, bucket) in buckets {
            let ways = bucket.tgid.into_iter().zip(bucket.ram);
            for (tgid, place) in ways.filter(|(tgid, _)| *tgid != 0) {
                let Some(ram) = ram_of(place).filter(|ram| ram.discards < abi::memory::RAM_MAX)
                else {
                    continue;
                };
                let vm = VmKey {
                    start_ns: ram.start_ns,
                    tgid,
                };
                let own = ram.discards as usize;
                self.discards.resize(self.discards.len().max(own + 1), None);
                self.discards[own] = Some(vm);
                vms.push((vm, place));
            }
            self.buckets.insert(index, bucket);
        }
        self.free
            .retain(|free| vms.iter().all(|(_, place)| place != free));
        vms
    }

    /// Returns the entry of `discards` of a VM, and whether it was allocated just now;
    /// `None` if all are in use.
    pub(super) fn discards_of(&mut self, vm: VmKey) -> Option<(u32, bool)> {
        let find = |wanted: Option<VmKey>| self.discards.iter().position(|one| *one == wanted);
        if let Some(own) = find(Some(vm)) {
            return Some((index(own), false));
        }
        let free = find(None).unwrap_or(self.discards.len());
        if index(free) >= abi::memory::RAM_MAX {
            return None;
        }
        self.discards
            .resize(self.discards.len().max(free + 1), None);
        self.discards[free] = Some(vm);
        Some((index(free), true))
    }

    /// Returns the VM of each entry of `discards`, up to the last allocated one.
    pub(super) fn owners(&self) -> &[Option<VmKey>] {
        &self.discards
    }

    /// Allocates an unused entry of `ram`; `None` if all are in use.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// Frees an entry of `ram` to which no bucket refers.
    pub(super) fn give_back(&mut self, ram: u32) {
        self.free.push_back(ram);
    }

    /// Returns the bucket of a process with `ram` as its entry, the bucket's index, and
    /// the former entry. `None` if the bucket is full.
    pub(super) fn named(&self, tgid: u32, ram: u32) -> Option<Naming> {
        let index = tgid % abi::memory::RAM_MAX;
        let mut bucket = self.bucket(index);
        let way_of = |wanted: u32| bucket.tgid.iter().position(|one| *one == wanted);
        let (way, before) = match way_of(tgid) {
            Some(own) => (own, Some(bucket.ram[own])),
            None => (way_of(0)?, None),
        };
        (bucket.tgid[way], bucket.ram[way]) = (tgid, ram);
        Some(Naming {
            index,
            bucket,
            before,
        })
    }

    /// Returns the bucket of a process without the process, and the bucket's index;
    /// `None` if `ram` is not its entry.
    pub(super) fn unnamed(&self, tgid: u32, ram: u32) -> Option<Naming> {
        let index = tgid % abi::memory::RAM_MAX;
        let mut bucket = self.bucket(index);
        let mut ways = bucket.tgid.iter().zip(bucket.ram);
        let way = ways.position(|one| one == (&tgid, ram))?;
        (bucket.tgid[way], bucket.ram[way]) = (0, 0);
        Some(Naming {
            index,
            bucket,
            before: Some(ram),
        })
    }

    /// Records that a bucket has been written.
    pub(super) fn keep(&mut self, naming: &Naming) {
        if naming.bucket.tgid == [0; abi::memory::RAM_WAYS] {
            self.buckets.remove(&naming.index);
        } else {
            self.buckets.insert(naming.index, naming.bucket);
        }
        self.free.extend(naming.before);
    }

    /// Frees the entry of `discards` of a VM.
    pub(super) fn forget(&mut self, vm: VmKey) {
        for owner in &mut self.discards {
            owner.take_if(|one| *one == vm);
        }
    }

    fn bucket(&self, index: u32) -> abi::memory::RamBucket {
        let none = abi::memory::RamBucket {
            tgid: [0; abi::memory::RAM_WAYS],
            ram: [0; abi::memory::RAM_WAYS],
        };
        self.buckets.get(&index).copied().unwrap_or(none)
    }
}

/// A bucket to be written.
pub(super) struct Naming {
    pub(super) index: u32,
    pub(super) bucket: abi::memory::RamBucket,
    /// The entry of `ram` that is freed once the bucket is written.
    before: Option<u32>,
}

fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use virtlens_abi as abi;
    use virtlens_model::vocab::VmKey;

    use super::Places;

    fn name(places: &mut Places, tgid: u32) -> Option<u32> {
        let ram = places.take()?;
        let naming = places.named(tgid, ram)?;
        places.keep(&naming);
        Some(ram)
    }

    fn entry_of(places: &Places, tgid: u32) -> Option<u32> {
        let bucket = places.buckets.get(&(tgid % abi::memory::RAM_MAX))?;
        let way = bucket.tgid.iter().position(|one| *one == tgid)?;
        Some(bucket.ram[way])
    }

    #[test]
    fn new_state_goes_to_another_entry_and_old_one_comes_last() {
        let mut places = Places::default();
        let first = name(&mut places, 7);
        let second = name(&mut places, 7);
        assert_ne!(first, second);
        assert_eq!(entry_of(&places, 7), second);
        assert_eq!(places.free.back().copied(), first);
        let all = places.free.len() + 1;
        assert_eq!(all, abi::memory::RAM_MAX as usize, "one is in use");
    }

    #[test]
    fn a_bucket_has_room_for_some_and_for_one_more_when_one_is_gone() {
        let mut places = Places::default();
        let tgids = (0..5).map(|round| 9 + round * abi::memory::RAM_MAX);
        let entries: Vec<Option<u32>> = tgids.map(|tgid| name(&mut places, tgid)).collect();
        assert!(entries[..abi::memory::RAM_WAYS].iter().all(Option::is_some));
        assert_eq!(entries[abi::memory::RAM_WAYS], None, "it is full");
        let of_first = entries[0].expect("it had room");
        let gone = places.unnamed(9, of_first).expect("it is named");
        places.keep(&gone);
        assert_eq!(entry_of(&places, 9), None);
        assert!(name(&mut places, 9 + 7 * abi::memory::RAM_MAX).is_some());
        let second = 9 + abi::memory::RAM_MAX;
        assert_eq!(entry_of(&places, second), entries[1], "others stay");
    }

    #[test]
    fn a_pid_that_is_another_vms_is_not_taken_from_it() {
        let mut places = Places::default();
        let old = name(&mut places, 7).expect("there is room");
        let new = name(&mut places, 7);
        assert!(places.unnamed(7, old).is_none());
        assert_eq!(entry_of(&places, 7), new);
    }

    #[test]
    fn entries_of_discards_are_kept_and_given_to_the_next() {
        let vm = |tgid| VmKey { start_ns: 1, tgid };
        let mut places = Places::default();
        assert_eq!(places.discards_of(vm(1)), Some((0, true)));
        assert_eq!(places.discards_of(vm(2)), Some((1, true)));
        assert_eq!(places.discards_of(vm(1)), Some((0, false)));
        places.forget(vm(1));
        assert_eq!(places.owners(), [None, Some(vm(2))]);
        assert_eq!(places.discards_of(vm(3)), Some((0, true)));
        let all = (4..).take_while(|tgid| places.discards_of(vm(*tgid)).is_some());
        assert_eq!(all.count(), abi::memory::RAM_MAX as usize - 2);
    }
}

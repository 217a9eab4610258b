//! The location of the RAM of VMs, and its discards: the arrays `ram` and `discards`.

mod places;

use places::{Naming, Places};
use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_abi as abi;
use virtlens_model::facts::{DiscardsFact, RamPiece};
use virtlens_model::identify::features::Thresholds;
use virtlens_model::vocab::{Features, VmKey};
use zerocopy::{FromZeros, IntoBytes};

use crate::maps::Maps;
use crate::sys::map::Batch;
use crate::{Error, decode};

/// Reads and writes these maps.
#[derive(Default)]
pub(crate) struct Memory {
    discards: Batch<u32, abi::memory::Discards>,
    written: FxHashMap<VmKey, Written>,
    places: Places,
    /// RAM ranges of former VMs that did not fit.
    lost: u64,
}

/// Generation of memslots that the programs do not have yet.
const NOT_WRITTEN: u64 = u64::MAX;

/// The settings of a VM that were written for the programs.
struct Written {
    thresholds: Thresholds,
    /// Generation of the memslots that were written.
    generation: u64,
    /// Its entry of `ram`, if it has one.
    ram: Option<u32>,
    /// Number of ranges that did not fit.
    lost: u64,
}

impl Memory {
    /// Takes over the settings of a former agent. They are written again, but the discard
    /// counters stay in their entries.
    pub(crate) fn adopt(&mut self, maps: &Maps) -> Result<(), Error> {
        let entries = abi::memory::RAM_MAX as usize;
        let mut buckets = Vec::new();
        maps.first(
            "ram_buckets",
            entries,
            &mut Batch::default(),
            |at, bucket| {
                let bucket: &abi::memory::RamBucket = bucket;
                if bucket.tgid != [0; abi::memory::RAM_WAYS] {
                    buckets.push((*at, *bucket));
                }
            },
        )?;
        let mut rams = FxHashMap::default();
        for (_, bucket) in &buckets {
            for place in bucket.ram {
                let ram: Option<abi::memory::Ram> = maps.get("ram", place.as_bytes())?;
                rams.extend(ram.map(|ram| (place, ram)));
            }
        }
        let ram_of = |place: u32| rams.get(&place).copied();
        for (vm, ram) in self.places.adopt(buckets, ram_of) {
            let written = Written {
                thresholds: Thresholds::of(&Features::default(), false),
                generation: NOT_WRITTEN,
                ram: Some(ram),
                lost: 0,
            };
            self.written.insert(vm, written);
        }
        Ok(())
    }

    /// Returns the VMs that have an entry.
    pub(crate) fn vms(&self) -> impl Iterator<Item = VmKey> {
        self.places.owners().iter().flatten().copied()
    }

    /// Whether the programs have the location of the RAM of `vm` for this generation of
    /// memslots.
    pub(crate) fn knows(&self, vm: VmKey, thresholds: Thresholds, generation: u64) -> bool {
        let written = self.written.get(&vm);
        written.is_some_and(|one| one.thresholds == thresholds && one.generation == generation)
    }

    /// Writes the location of the RAM of `vm` for the programs. Ranges that do not fit
    /// are counted as lost.
    pub(crate) fn set(
        &mut self,
        maps: &Maps,
        vm: VmKey,
        (thresholds, generation): (Thresholds, u64),
        pieces: &[RamPiece],
    ) {
        let (ram, beyond) = ram(vm, thresholds, pieces);
        let before = self.written.get(&vm).map(|one| (one.ram, one.lost));
        let (ram_before, lost_before) = before.unwrap_or_default();
        let (ram, lost, generation) = match self.write(maps, vm, ram) {
            Ok(ram) => (Some(ram), beyond, generation),
            Err(error) => {
                tracing::debug!(pid = vm.tgid, %error, "cannot track the RAM of a VM");
                // If the maps are full, a retry at the next reading would fail too.
                let known = if error.is_full() {
                    generation
                } else {
                    NOT_WRITTEN
                };
                (ram_before, pieces.len() as u64, known)
            }
        };
        let written = Written {
            thresholds,
            generation,
            ram,
            // A counter never decreases, also when fewer ranges are lost.
            lost: lost.max(lost_before),
        };
        self.written.insert(vm, written);
    }

    /// Writes to an unused entry of `ram`, and then points the VMM's process to it.
    /// Returns the entry.
    fn write(&mut self, maps: &Maps, vm: VmKey, mut ram: abi::memory::Ram) -> Result<u32, Error> {
        let given = self.places.discards_of(vm);
        let (discards, is_new) = given.ok_or_else(|| Maps::is_full("discards"))?;
        if is_new {
            let none = abi::memory::Discards::new_zeroed();
            maps.update("discards", discards.as_bytes(), none.as_bytes())
                .inspect_err(|_| self.places.forget(vm))?;
        }
        ram.discards = discards;
        let place = self.places.take().ok_or_else(|| Maps::is_full("ram"))?;
        let named = maps
            .update("ram", place.as_bytes(), ram.as_bytes())
            .and_then(|()| {
                let naming = self.places.named(vm.tgid, place);
                naming.ok_or_else(|| Maps::is_full("ram_buckets"))
            })
            .and_then(|naming| write_bucket(maps, &naming).map(|()| naming));
        match named {
            Ok(naming) => {
                self.places.keep(&naming);
                Ok(place)
            }
            Err(error) => {
                self.places.give_back(place);
                Err(error)
            }
        }
    }

    /// Returns the discards of the RAM of each VM.
    pub(crate) fn discards(&mut self, maps: &Maps) -> Result<Vec<(VmKey, DiscardsFact)>, Error> {
        let owners = self.places.owners();
        let mut facts = Vec::with_capacity(owners.len());
        maps.first("discards", owners.len(), &mut self.discards, |at, sums| {
            if let Some(vm) = owners[*at as usize] {
                facts.push((vm, decode::discards(sums)));
            }
        })?;
        Ok(facts)
    }

    /// Number of VMs in the array `discards`.
    pub(crate) fn entries(&self) -> u64 {
        self.places.owners().iter().flatten().count() as u64
    }

    /// Removes the data of former VMs.
    pub(crate) fn forget(&mut self, maps: &Maps, gone: &FxHashSet<VmKey>) -> Result<(), Error> {
        for vm in gone {
            let Some(written) = self.written.get(vm) else {
                continue;
            };
            // Another VM may have this pid by now, with its entry.
            let naming = written
                .ram
                .and_then(|ram| self.places.unnamed(vm.tgid, ram));
            if let Some(naming) = naming {
                write_bucket(maps, &naming)?;
                self.places.keep(&naming);
            }
            self.lost += written.lost;
            self.places.forget(*vm);
            self.written.remove(vm);
        }
        Ok(())
    }

    /// Number of RAM ranges that are not tracked.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.written.values().map(|one| one.lost);
        lost.sum::<u64>() + self.lost
    }
}

fn write_bucket(maps: &Maps, naming: &Naming) -> Result<(), Error> {
    let index = naming.index.as_bytes();
    maps.update("ram_buckets", index, naming.bucket.as_bytes())
}

/// Backing of the largest range: smaller ones are video memory and the like.
fn backing(pieces: &[RamPiece]) -> u32 {
    let largest = pieces
        .iter()
        .max_by_key(|one| one.piece.end - one.piece.start);
    match largest.map(|one| one.file) {
        Some(None) => abi::memory::RAM_ANONYMOUS,
        Some(Some(file)) if file.in_memory => abi::memory::RAM_SHARED,
        _ => abi::memory::RAM_OF_ANY,
    }
}

/// Returns the entry for the programs, and the number of ranges that do not fit: the
/// largest ranges are kept.
fn ram(vm: VmKey, thresholds: Thresholds, pieces: &[RamPiece]) -> (abi::memory::Ram, u64) {
    let mut kept: Vec<&RamPiece> = pieces.iter().collect();
    kept.sort_by_key(|one| std::cmp::Reverse(one.piece.end - one.piece.start));
    let lost = kept.len().saturating_sub(abi::memory::RAM_RANGES_MAX) as u64;
    kept.truncate(abi::memory::RAM_RANGES_MAX);
    let mut ram = abi::memory::Ram::new_zeroed();
    ram.start_ns = vm.start_ns;
    ram.other_min_bytes = thresholds.other_min;
    ram.report_min_bytes = thresholds.report_min;
    ram.backing = backing(pieces);
    for (range, one) in ram.range.iter_mut().zip(&kept) {
        (range.start, range.end) = (one.piece.start, one.piece.end);
        if let Some(file) = one.file {
            (range.inode, range.offset) = (file.inode, file.offset);
            range.device = file.device;
        }
        ram.ranges += 1;
    }
    (ram, lost)
}

#[cfg(test)]
mod tests {
    use virtlens_abi as abi;
    use virtlens_model::facts::{Backing, Piece, RamPiece};
    use virtlens_model::identify::features::Thresholds;
    use virtlens_model::vocab::{Features, VmKey};

    use super::{backing, ram};

    #[test]
    fn ram_is_where_its_largest_piece_is() {
        let file = |in_memory| {
            Some(Backing {
                in_memory,
                device: 1,
                inode: 2,
                offset: 0,
            })
        };
        let piece = |end, file| RamPiece {
            piece: Piece { start: 0, end },
            file,
        };
        let video = piece(16, None);
        for (file, expected) in [
            (None, abi::memory::RAM_ANONYMOUS),
            (file(true), abi::memory::RAM_SHARED),
            (file(false), abi::memory::RAM_OF_ANY),
        ] {
            assert_eq!(backing(&[video, piece(1024, file)]), expected);
        }
        assert_eq!(backing(&[]), abi::memory::RAM_OF_ANY);
    }

    #[test]
    fn largest_pieces_are_kept_and_come_first() {
        let vm = VmKey {
            start_ns: 5,
            tgid: 7,
        };
        let pieces: Vec<RamPiece> = (1..=20u64)
            .map(|size| RamPiece {
                piece: Piece {
                    start: size << 32,
                    end: (size << 32) + size,
                },
                file: None,
            })
            .collect();
        let (ram, lost) = ram(vm, Thresholds::of(&Features::default(), false), &pieces);
        assert_eq!((ram.ranges, lost, ram.start_ns), (16, 4, 5));
        assert_eq!(ram.range[0].end - ram.range[0].start, 20);
        assert_eq!(ram.range[15].end - ram.range[15].start, 5);
    }
}

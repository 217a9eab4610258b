//! The memory of VMs, and the location of their RAM.

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::facts::{DiscardsFact, MemoryFact, Memslot, Piece, bytes_in, ram_of};
use virtlens_model::vocab::{DiscardSum, VmKey};
use zerocopy::FromBytes;

use super::known;
use super::stream::Record;
use crate::Error;

/// `KVM_MEM_READONLY` (include/uapi/linux/kvm.h).
const READ_ONLY: u32 = 1 << 1;

/// The location of a VM's RAM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsOf {
    /// The ranges.
    pub pieces: Vec<Piece>,
    /// Number of times that it was emitted.
    pub generation: u64,
}

/// The location of the RAM of each VM.
#[derive(Debug, Default)]
pub(super) struct Memories(FxHashMap<VmKey, SlotsOf>);

impl Memories {
    /// Stores a VM's memslots.
    pub(super) fn learn(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let (slots, rest) = record.of::<abi::memory::MemslotsRecord>()?;
        let slot_records = <[abi::memory::Memslot]>::ref_from_bytes(rest)
            .map_err(|_| record.broken("truncated memslot"))?;
        let memslots: Vec<Memslot> = slot_records
            .iter()
            .map(|slot| Memslot {
                start: slot.start,
                bytes: slot.bytes,
                read_only: slot.flags & READ_ONLY != 0,
            })
            .collect();
        let of_vm = self.0.entry(vm_of(slots.owner)).or_default();
        of_vm.pieces = ram_of(&memslots);
        of_vm.generation += 1;
        Ok(())
    }

    /// Adds the size of the guests' RAM.
    pub(super) fn add_guest_bytes(&self, facts: &mut FxHashMap<VmKey, MemoryFact>) {
        for (vm, fact) in facts {
            fact.guest_bytes = self.0.get(vm).map(|slots| bytes_in(&slots.pieces));
        }
    }

    pub(super) fn of(&self, vm: VmKey) -> Option<&SlotsOf> {
        self.0.get(&vm)
    }

    pub(super) fn forget(&mut self, vm: VmKey) {
        self.0.remove(&vm);
    }
}

/// Converts the memory of a VM's process.
pub(super) fn memory(record: &abi::memory::MemoryRecord) -> (VmKey, MemoryFact) {
    let fact = MemoryFact {
        guest_bytes: None,
        resident_bytes: known(record.resident_bytes),
        swap_bytes: known(record.swap_bytes),
        peak_bytes: known(record.peak_bytes),
        huge_bytes: record.hugetlb_bytes,
        refault_bytes: known(record.refault_bytes),
        discards: None,
    };
    (vm_of(record.owner), fact)
}

fn vm_of(owner: abi::Owner) -> VmKey {
    VmKey {
        start_ns: owner.id,
        tgid: owner.tgid,
    }
}

/// Converts an entry of the array `discards`.
#[expect(clippy::indexing_slicing, reason = "constants, one for each sum")]
pub fn discards(sums: &abi::memory::Discards) -> DiscardsFact {
    let of = |kind: u32| {
        let at = kind as usize;
        DiscardSum {
            events: sums.events[at],
            bytes: sums.bytes[at],
            ns: sums.ns[at],
        }
    };
    DiscardsFact {
        sums: [
            of(abi::memory::DISCARD_INFLATE),
            of(abi::memory::DISCARD_DEFLATE),
            of(abi::memory::DISCARD_REPORT),
            of(abi::memory::DISCARD_OTHER),
        ],
    }
}

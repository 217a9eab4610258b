//! The memory of VMs, and the location of their RAM.

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::facts::{
    DiscardsFact, GuestMemfd, MemoryFact, Memslot, Piece, guest_memfd_bytes, is_dirty_logged,
    ram_bytes, ram_of,
};
use virtlens_model::vocab::{DiscardSum, VmKey};
use zerocopy::FromBytes;

use super::known;
use super::stream::Record;
use crate::Error;

/// `KVM_MEM_LOG_DIRTY_PAGES` (include/uapi/linux/kvm.h).
const DIRTY_LOGGED: u32 = 1 << 0;
/// `KVM_MEM_READONLY`.
const READ_ONLY: u32 = 1 << 1;
/// `KVM_MEM_GUEST_MEMFD`.
const GUEST_MEMFD: u32 = 1 << 2;

/// The location of a VM's RAM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsOf {
    /// The ranges.
    pub pieces: Vec<Piece>,
    /// Number of times that it changed.
    pub generation: u64,
    /// KVM's generation of its memslots.
    kvm_generation: u64,
    /// Size of the RAM, bytes.
    pub bytes: u64,
    /// Bytes in `guest_memfd` files in the pass in progress.
    guest_memfd_bytes: Option<u64>,
    /// Whether KVM logs the guest's writes: see [`is_dirty_logged`].
    pub is_dirty_logged: bool,
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
                dirty_logged: slot.flags & DIRTY_LOGGED != 0,
                guest_memfd: (slot.flags & GUEST_MEMFD != 0).then_some(GuestMemfd {
                    id: slot.guest_memfd,
                    bytes: slot.guest_memfd_bytes,
                }),
            })
            .collect();
        let pieces = ram_of(&memslots);
        let of_vm = self.0.entry(vm_of(slots.owner)).or_default();
        // Also a process that creates another VM: it can have the same generation.
        if of_vm.kvm_generation != slots.generation || of_vm.pieces != pieces {
            of_vm.generation += 1;
        }
        of_vm.kvm_generation = slots.generation;
        of_vm.pieces = pieces;
        of_vm.bytes = ram_bytes(&memslots);
        of_vm.guest_memfd_bytes = guest_memfd_bytes(&memslots);
        of_vm.is_dirty_logged = is_dirty_logged(&memslots);
        Ok(())
    }

    /// Adds the facts of the memslots, at the end of a pass.
    pub(super) fn add_to(&mut self, facts: &mut FxHashMap<VmKey, MemoryFact>) {
        for (vm, fact) in facts {
            if let Some(slots) = self.0.get_mut(vm) {
                fact.guest_bytes = Some(slots.bytes);
                fact.dirty_logging = Some(slots.is_dirty_logged);
                // Each pass emits it.
                fact.guest_memfd_bytes = slots.guest_memfd_bytes.take();
            }
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
        guest_memfd_bytes: None,
        dirty_logging: None,
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

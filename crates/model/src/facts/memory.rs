//! Memory of VMs.

use std::cmp::Reverse;

use crate::vocab::{Discard, DiscardSum};

/// Discards of one VM's RAM that the BPF programs counted since the VM was first seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiscardsFact {
    /// In the order of [`Discard::ALL`].
    pub sums: [DiscardSum; Discard::ALL.len()],
}

/// Memory of a VM in one reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFact {
    /// RAM of the guest, bytes.
    pub guest_bytes: Option<u64>,
    /// Resident memory of the VMM process without huge pages, bytes.
    pub resident_bytes: Option<u64>,
    /// Private memory of the VMM process in swap, bytes.
    pub swap_bytes: Option<u64>,
    /// Highest resident memory so far as the kernel reports it, bytes.
    pub peak_bytes: Option<u64>,
    /// Huge pages (hugetlbfs) of the process, bytes.
    pub huge_bytes: u64,
    /// Reported memory that the guest has reused, bytes; `None` if RAM is not tracked.
    pub refault_bytes: Option<u64>,
    /// Discards of RAM; `None` if they are not tracked.
    pub discards: Option<DiscardsFact>,
    /// Memory of the guest in its `guest_memfd` files, bytes: see [`guest_memfd_bytes`].
    /// `None` if it has no such file, or if its memslots are unknown.
    pub guest_memfd_bytes: Option<u64>,
    /// Whether KVM logs the guest's writes: see [`is_dirty_logged`]. `None` if the memslots
    /// are unknown.
    pub dirty_logging: Option<bool>,
}

/// A KVM memslot: host memory that is mapped into the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memslot {
    /// Start address in the VMM process.
    pub start: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// Read-only for the guest: firmware, not RAM.
    pub read_only: bool,
    /// KVM logs which of its pages the guest writes.
    pub dirty_logged: bool,
    /// The file of its private memory.
    pub guest_memfd: Option<GuestMemfd>,
}

/// A `guest_memfd`: a file whose pages only the guest can use, such as the memory of a
/// confidential VM. Since Linux 6.18 it can also be the ordinary RAM of a VM, which the VMM may
/// map (`GUEST_MEMFD_FLAG_MMAP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestMemfd {
    /// Identifies the file; 0 if it was closed.
    pub id: u64,
    /// Bytes of all its pages. A page exists from its first use, or from its allocation by the
    /// VMM.
    pub bytes: u64,
}

/// An address range of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// First address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
}

/// The file behind an address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// The memory of the file is the RAM itself: a memfd or a file of tmpfs or hugetlbfs,
    /// mapped as shared.
    pub in_memory: bool,
    /// Device number: 12 bits major, 20 bits minor.
    pub device: u32,
    /// Inode number; never 0.
    pub inode: u64,
    /// Offset in the file at which the range begins.
    pub offset: u64,
}

/// An address range of RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RamPiece {
    /// The address range.
    pub piece: Piece,
    /// The file behind the range; `None` is anonymous memory.
    pub file: Option<Backing>,
}

/// The RAM among the memslots, sorted by address. Adjacent slots are not merged, because
/// a discard of a whole slot is not a balloon operation. Memory that is mapped into the
/// guest twice counts once.
pub fn ram_of(slots: &[Memslot]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = slots
        .iter()
        .filter(|slot| !slot.read_only && slot.start > 0 && slot.bytes > 0)
        .map(|slot| Piece {
            start: slot.start,
            end: slot.start.saturating_add(slot.bytes),
        })
        .collect();
    pieces.sort_unstable_by_key(|piece| (piece.start, Reverse(piece.end)));
    pieces.dedup_by(|next, last| next.end <= last.end);
    pieces
}

/// Size of the RAM among the memslots, bytes. Slots without an address in the VMM have a
/// `guest_memfd` only; KVM binds each part of such a file to one slot at most.
pub fn ram_bytes(slots: &[Memslot]) -> u64 {
    let unmapped = slots
        .iter()
        .filter(|slot| !slot.read_only && slot.start == 0);
    let unmapped = unmapped.filter(|slot| slot.guest_memfd.is_some());
    let unmapped = unmapped.map(|slot| slot.bytes);
    unmapped.fold(bytes_in(&ram_of(slots)), u64::saturating_add)
}

/// Bytes of all `guest_memfd` files of a VM, each counted once; `None` if no memslot has one.
pub fn guest_memfd_bytes(slots: &[Memslot]) -> Option<u64> {
    let mut files: Vec<GuestMemfd> = slots.iter().filter_map(|slot| slot.guest_memfd).collect();
    files.sort_unstable();
    files.dedup_by_key(|file| file.id);
    let bytes = files.into_iter().map(|file| file.bytes);
    bytes.reduce(u64::saturating_add)
}

/// Whether KVM logs the guest's writes to at least half of its RAM, as during a live
/// migration. One logged slot does not suffice: QEMU always logs the writes to the memory of
/// an emulated graphics card, to redraw what has changed (`vga_dirty_log_start`,
/// hw/display/vga.c). For a migration it logs all slots (`memory_global_dirty_log_start`), and
/// so do Cloud Hypervisor (`start_dirty_log`) and Firecracker (`track_dirty_pages`). KVM gives
/// the memslots another generation also when only flags change (`kvm_swap_active_memslots`,
/// `virt/kvm/kvm_main.c`; before v5.17 `install_new_memslots`).
pub fn is_dirty_logged(slots: &[Memslot]) -> bool {
    let all = ram_bytes(slots);
    let logged: Vec<Memslot> = slots
        .iter()
        .filter(|one| one.dirty_logged)
        .copied()
        .collect();
    let logged = bytes_in(&ram_of(&logged));
    logged > 0 && logged >= all.saturating_sub(logged)
}

/// Bytes in all ranges, which must be sorted; overlaps count once.
pub fn bytes_in(pieces: &[Piece]) -> u64 {
    let (bytes, _) = pieces.iter().fold((0, 0), |(bytes, end), piece| {
        let new = piece.end.saturating_sub(piece.start.max(end));
        (bytes + new, piece.end.max(end))
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::{GuestMemfd, Memslot, Piece};
    use crate::facts::{bytes_in, guest_memfd_bytes, is_dirty_logged, ram_bytes, ram_of};

    fn slot(start: u64, bytes: u64, read_only: bool) -> Memslot {
        Memslot {
            start,
            bytes,
            read_only,
            dirty_logged: false,
            guest_memfd: None,
        }
    }

    #[test]
    fn each_guest_memfd_counts_once() {
        let private = |start, id, bytes| Memslot {
            guest_memfd: Some(GuestMemfd { id, bytes }),
            ..slot(start, 0x10_0000, false)
        };
        let normal = slot(0x900_0000, 0x10_0000, false);
        for (slots, bytes, ram) in [
            (vec![], None, 0),
            (vec![normal], None, 0x10_0000),
            (
                vec![private(0x100_0000, 7, 0x3000)],
                Some(0x3000),
                0x10_0000,
            ),
            (vec![private(0x100_0000, 0, 0)], Some(0), 0x10_0000),
            (
                vec![
                    private(0x100_0000, 7, 0x3000),
                    private(0, 8, 0x1000),
                    private(0, 7, 0x3000),
                    normal,
                ],
                Some(0x4000),
                0x40_0000,
            ),
        ] {
            assert_eq!(guest_memfd_bytes(&slots), bytes, "{slots:?}");
            assert_eq!(ram_bytes(&slots), ram, "{slots:?}");
            assert!(!is_dirty_logged(&slots));
        }
    }

    #[test]
    fn half_of_ram_must_be_dirty_logged() {
        let logged = |start, bytes, read_only| Memslot {
            dirty_logged: true,
            ..slot(start, bytes, read_only)
        };
        let video = logged(0x900_0000, 0x100_0000, false);
        let ram = |bytes| slot(0x100_0000, bytes, false);
        let alias = logged(0x100_0000, 0x1000, false);
        for (slots, expected) in [
            (vec![], false),
            (vec![ram(0x400_0000)], false),
            (vec![ram(0x400_0000), video], false),
            (vec![ram(0x400_0000), video, alias], false),
            (vec![ram(0x100_1000), video], false),
            (vec![ram(0x100_0000), video], true),
            (vec![logged(0x100_0000, 0x400_0000, false), video], true),
            (
                vec![ram(0x1000), logged(0x900_0000, 0x1000_0000, true)],
                false,
            ),
        ] {
            assert_eq!(is_dirty_logged(&slots), expected, "{slots:?}");
        }
    }

    #[test]
    fn aliased_memory_is_one_piece_and_firmware_is_excluded() {
        let slots = [
            slot(0x110_0000, 0x10_0000, false),
            slot(0x100_0000, 0xa_0000, false),
            slot(0x10a_0000, 0x6_0000, true),
            slot(0x120_0000, 0x1000, false),
            // An alias: the guest sees this part a second time.
            slot(0x100_1000, 0x1000, false),
            slot(0, 0x1000, false),
        ];
        let pieces = ram_of(&slots);
        let piece = |start, end| Piece { start, end };
        assert_eq!(
            pieces,
            [
                piece(0x100_0000, 0x10a_0000),
                piece(0x110_0000, 0x120_0000),
                piece(0x120_0000, 0x120_1000),
            ]
        );
        assert_eq!(bytes_in(&pieces), 0x1a_1000);
        assert_eq!(ram_of(&[]), []);
    }
}

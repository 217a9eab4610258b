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
    use super::{Memslot, Piece};
    use crate::facts::{bytes_in, ram_of};

    fn slot(start: u64, bytes: u64, read_only: bool) -> Memslot {
        Memslot {
            start,
            bytes,
            read_only,
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

//! Memory of VMs.

use std::cmp::Reverse;

use crate::vocab::{Discard, DiscardSum};

/// What the programs counted of one VM since it was first seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiscardsFact {
    /// In the order of [`Discard::ALL`].
    pub sums: [DiscardSum; Discard::ALL.len()],
}

/// What a reading says of a VM's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryFact {
    /// RAM that its guest was given, bytes.
    pub guest_bytes: Option<u64>,
    /// Memory of its VMM's process that is there, without huge pages, bytes.
    pub resident_bytes: Option<u64>,
    /// The highest of that so far, as the kernel has it, bytes.
    pub peak_bytes: Option<u64>,
    /// Huge pages of hugetlbfs that the process has, bytes.
    pub huge_bytes: u64,
    /// Reported memory that the guest has taken again, bytes; `None` where RAM is
    /// not followed.
    pub refault_bytes: Option<u64>,
    /// What was discarded; `None` where that is not followed.
    pub discards: Option<DiscardsFact>,
}

/// A memslot of KVM: host memory that the guest sees somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memslot {
    /// Its address in the VMM's process.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// The guest cannot write to it: firmware, not RAM.
    pub read_only: bool,
}

/// A piece of a process's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
}

/// The file behind a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backing {
    /// The RAM is the file's own memory: it is a memfd or of tmpfs or hugetlbfs,
    /// and mapped as shared.
    pub in_memory: bool,
    /// The number of its device, 12 bits major and 20 bits minor.
    pub device: u32,
    /// Its inode; never 0.
    pub inode: u64,
    /// Where in it the piece begins.
    pub offset: u64,
}

/// A piece of RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RamPiece {
    /// Where it lies.
    pub piece: Piece,
    /// The file behind it; `None` is anonymous memory.
    pub file: Option<Backing>,
}

/// The RAM among the memslots, in order. Neighbours stay apart: to discard the
/// whole of one is not what a balloon does. What the guest sees at two places
/// is one.
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

/// The bytes in all pieces, which come in order; what is in two counts once.
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
    fn what_the_guest_sees_twice_is_one_piece_and_firmware_is_none() {
        let slots = [
            slot(0x110_0000, 0x10_0000, false),
            slot(0x100_0000, 0xa_0000, false),
            slot(0x10a_0000, 0x6_0000, true),
            slot(0x120_0000, 0x1000, false),
            // The guest sees a part of it a second time.
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

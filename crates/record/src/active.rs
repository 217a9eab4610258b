//! Finds the cells of a value that change or are watched.
//!
//! Most cells do neither, and a recording compares all of them. So they are compared in vectors
//! of 16 bytes, which every x86-64 and aarch64 CPU has. The compiler makes no vectors of a loop
//! that compares one cell after the other and collects bits.

use wide::bytemuck::cast;
use wide::{i8x16, i16x8, i16x16, i32x8};

/// Cells that are compared at once.
const GROUP: usize = 16;

/// A bit for each of at most 64 cells that changes or is watched, without branches.
#[expect(clippy::inline_always, reason = "arrays have a known length")]
#[inline(always)]
pub(crate) fn active(known: &[u64], watched: &[u8], cells: &[u64]) -> u64 {
    let (known, known_rest) = known.as_chunks::<GROUP>();
    let (watched, watched_rest) = watched.as_chunks::<GROUP>();
    let (cells, cells_rest) = cells.as_chunks::<GROUP>();
    let (mut active, mut place) = (0, 0);
    for ((known, watched), cells) in known.iter().zip(watched).zip(cells) {
        active |= u64::from(active_of(known, watched, cells)) << place;
        place += GROUP;
    }
    for ((known, watched), cell) in known_rest.iter().zip(watched_rest).zip(cells_rest) {
        active |= (u64::from(known != cell) | u64::from(*watched != 0)) << place;
        place += 1;
    }
    active
}

/// The same for a group.
#[inline]
#[expect(clippy::indexing_slicing, reason = "places in an array")]
fn active_of(known: &[u64; GROUP], watched: &[u8; GROUP], cells: &[u64; GROUP]) -> u16 {
    // The halves of four cells. A lane has all bits if what it stands for is equal, otherwise none.
    let halves_of = |all: &[u64; GROUP], at| -> i32x8 {
        let four: [u64; 4] = std::array::from_fn(|next| all[at + next]);
        cast(four)
    };
    let equal_halves = |at| {
        let equal = halves_of(known, at).simd_eq(halves_of(cells, at));
        i16x8::from_i32x8_saturate(equal)
    };
    // SSE2 does not compare 64 bits: a cell is equal if both of its halves are.
    let equal_cells = |at| {
        let halves: i32x8 = cast([equal_halves(at), equal_halves(at + 4)]);
        i16x8::from_i32x8_saturate(halves.simd_eq(i32x8::splat(-1)))
    };
    let equal: i16x16 = cast([equal_cells(0), equal_cells(8)]);
    let unwatched = cast::<_, i8x16>(*watched).simd_eq(i8x16::splat(0));
    let quiet = i8x16::from_i16x16_saturate(equal) & unwatched;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a bit for each of 16 lanes"
    )]
    let quiet = quiet.to_bitmask() as u16;
    !quiet
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::active;

    /// A cell before, whether it is watched, and the cell now.
    fn cell() -> impl Strategy<Value = (u64, u8, u64)> {
        let difference = prop_oneof![
            3 => Just(0),
            1 => (0..64_u32).prop_map(|bit| 1 << bit),
            1 => any::<u64>(),
        ];
        let watched = prop_oneof![3 => Just(0), 1 => any::<u8>()];
        (any::<u64>(), watched, difference)
            .prop_map(|(known, watched, difference)| (known, watched, known ^ difference))
    }

    proptest! {
        #[test]
        fn active_cells_are_those_that_change_or_are_watched(
            all in prop::collection::vec(cell(), 0..=64),
        ) {
            let known: Vec<u64> = all.iter().map(|(known, ..)| *known).collect();
            let watched: Vec<u8> = all.iter().map(|(_, watched, _)| *watched).collect();
            let cells: Vec<u64> = all.iter().map(|(.., cell)| *cell).collect();
            let found = active(&known, &watched, &cells);
            for (at, (known, watched, cell)) in all.iter().enumerate() {
                let is_active = known != cell || *watched != 0;
                prop_assert_eq!(found >> at & 1 == 1, is_active, "cell {}", at);
            }
            prop_assert!(all.len() == 64 || found >> all.len() == 0);
        }
    }
}

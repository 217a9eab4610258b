//! Turns a flat value into the next one, and writes the difference.
//!
//! Most values of a reading are those of the reading before, so they are only compared.

use std::iter::repeat_n;
use std::sync::Arc;

use crate::bits::Differences;
use crate::columns::Columns;
use crate::dictionary::Dictionary;
use crate::flat::{Flat, still_watched};
use crate::flatten::Flattened;
use crate::shape::{Column, Shapes};
use crate::varint::{put, put_len};

/// The streams of a frame. Each compresses better alone; see [`crate::delta`].
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) layout: Vec<u8>,
    pub(crate) runs: Vec<u8>,
    pub(crate) columns: Columns,
    pub(crate) cells: Differences,
    /// Quiet cells since the last one that woke.
    quiet: u64,
    shapes: Shapes,
}

/// Cells that are compared at once.
const CHUNK: usize = 8;

/// The tokens of a value are not those of one, which would be a bug.
#[derive(Debug, thiserror::Error)]
#[error("the structure of a value is broken")]
pub struct Broken;

impl Streams {
    /// Begins the next frame.
    pub(crate) fn clear(&mut self) {
        self.layout.clear();
        self.runs.clear();
        self.columns.clear();
        self.cells.clear();
        self.quiet = 0;
    }

    /// Forgets all frames.
    pub(crate) fn restart(&mut self) {
        self.columns.restart();
        self.shapes.clear();
    }

    /// Ends the frame.
    pub(crate) fn finish(&mut self) {
        put(&mut self.runs, self.quiet);
    }

    /// Turns a value into the next one, of `count` in the frame.
    pub(crate) fn update(
        &mut self,
        value: &mut Flat,
        next: &Flattened,
        names: &Dictionary,
        count: usize,
    ) -> Result<(), Broken> {
        self.columns.begin_value(count);
        self.cells.begin_value();
        if value.shape.tokens == next.tokens {
            put(&mut self.layout, 0);
            let shape = Arc::clone(&value.shape);
            self.put_kept(value, 0, &next.cells, &shape.columns);
            return Ok(());
        }
        let shape = self.shapes.get(&next.tokens, names).ok_or(Broken)?;
        self.columns.grow_to(names.column_count());
        self.replace(value, next, &shape.columns);
        value.shape = shape;
        Ok(())
    }

    /// Replaces the numbers of cells that stay, from a place on.
    #[expect(clippy::indexing_slicing, reason = "each cell has all three")]
    fn put_kept(&mut self, value: &mut Flat, at: usize, cells: &[u64], columns: &[Column]) {
        let end = at + cells.len();
        let (known, watched) = (&mut value.cells[at..end], &mut value.watched[at..end]);
        let differences = &mut value.differences[at..end];
        let (known, known_rest) = known.as_chunks_mut::<CHUNK>();
        let (watched, watched_rest) = watched.as_chunks_mut::<CHUNK>();
        let (cells, cells_rest) = cells.as_chunks::<CHUNK>();
        let chunks = known.iter_mut().zip(watched).zip(cells);
        let others = differences.chunks_mut(CHUNK).zip(columns.chunks(CHUNK));
        for (((known, watched), cells), (differences, columns)) in chunks.zip(others) {
            // Most cells are quiet.
            if *watched == [0; CHUNK] && known == cells {
                self.quiet += CHUNK as u64;
                continue;
            }
            self.put_chunk(known, watched, cells, differences, columns);
        }
        let rest = differences.len() - cells_rest.len();
        let (differences, columns) = (&mut differences[rest..], &columns[rest..]);
        self.put_chunk(known_rest, watched_rest, cells_rest, differences, columns);
    }

    /// Replaces the numbers of at most [`CHUNK`] cells.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "all have the same length")]
    fn put_chunk(
        &mut self,
        known: &mut [u64],
        watched: &mut [u8],
        cells: &[u64],
        differences: &mut [i64],
        columns: &[Column],
    ) {
        let mut active = 0_u32;
        for (at, ((known, watched), cell)) in known.iter().zip(&*watched).zip(cells).enumerate() {
            active |= u32::from(*known != *cell || *watched != 0) << at;
        }
        let mut next = 0;
        while active != 0 {
            let at = active.trailing_zeros() as usize;
            active &= active - 1;
            self.quiet += (at - next) as u64;
            next = at + 1;
            if watched[at] == 0 {
                put(&mut self.runs, self.quiet);
                self.quiet = 0;
            }
            let difference = cells[at].wrapping_sub(known[at]).cast_signed();
            let code = |expected| self.cells.put(difference, expected);
            self.columns
                .put(columns[at], difference, differences[at], code);
            known[at] = cells[at];
            differences[at] = difference;
            watched[at] = still_watched(watched[at], difference);
        }
        self.quiet += (cells.len() - next) as u64;
    }

    /// Replaces a value whose structure differs.
    #[expect(clippy::indexing_slicing, reason = "positions that it counted in them")]
    fn replace(&mut self, value: &mut Flat, next: &Flattened, columns: &[Column]) {
        let (old, new) = (&value.shape.tokens, &next.tokens);
        let same = |(one, other): &(&u16, &u16)| one == other;
        let start = old.iter().zip(new).take_while(same).count();
        let (old, new) = (&old[start..], &new[start..]);
        let pairs = old.iter().rev().zip(new.iter().rev());
        let end = pairs.take_while(same).count();
        let between = &new[..new.len() - end];
        put(&mut self.layout, 1);
        for len in [start, end, between.len()] {
            put_len(&mut self.layout, len);
        }
        for token in between {
            put(&mut self.layout, (*token).into());
        }

        let first = Flat::cells_of(&next.tokens[..start]);
        let last = next.cells.len() - Flat::cells_of(&new[new.len() - end..]);
        let old_last = value.cells.len() - (next.cells.len() - last);
        self.put_kept(value, 0, &next.cells[..first], &columns[..first]);
        let new = &next.cells[first..last];
        for (cell, column) in new.iter().zip(&columns[first..last]) {
            // Values that follow each other in a structure have little in common.
            let difference = cell.cast_signed();
            let code = |expected| self.cells.put(difference, expected);
            self.columns.put(*column, difference, 0, code);
        }
        let replaced = first..old_last;
        value.cells.splice(replaced.clone(), new.iter().copied());
        let (count, known) = (new.len(), replaced.clone());
        value.differences.splice(known, repeat_n(0, count));
        value.watched.splice(replaced, repeat_n(0, count));
        self.put_kept(value, last, &next.cells[last..], &columns[last..]);
    }
}

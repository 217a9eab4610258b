//! Turns a flat value into the next one, and writes the difference.
//!
//! Most values of a reading are those of the reading before, so they are only compared.

use std::iter::repeat_n;
use std::mem;
use std::slice;
use std::sync::Arc;

use crate::active::active;
use crate::ahead::NextFlat;
use crate::columns::Columns;
use crate::dictionary::Dictionary;
use crate::flat::{Flat, WATCHED, next_mean, still_watched};
use crate::flattened::Flattened;
use crate::shape::{Column, Shapes};
use crate::varint::{put, put_len};

/// The streams of a frame. Each compresses better alone; see [`crate::delta`].
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) layout: Vec<u8>,
    pub(crate) runs: Vec<u8>,
    pub(crate) columns: Columns,
    /// Quiet cells since the last one that woke.
    quiet: u64,
    shapes: Shapes,
    /// [`Flat::means`] of the value before. Empty between two values.
    means: Vec<i64>,
}

/// Cells whose changes are in one word: a short loop for each chunk would be mispredicted.
const CHUNK: usize = 64;

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
        self.columns.finish();
    }

    /// Turns a value into the next one.
    pub(crate) fn update(
        &mut self,
        value: &mut Flat,
        next: &Flattened,
        names: &Dictionary,
        ahead: NextFlat<'_>,
    ) -> Result<(), Broken> {
        self.columns.prefetch();
        let mut before = mem::take(&mut self.means);
        before.extend_from_slice(&value.means);
        value.means.clear();
        let mut means = before.iter();
        let updated = if value.shape.tokens == next.tokens {
            put(&mut self.layout, 0);
            let shape = Arc::clone(&value.shape);
            self.put_kept(value, 0, &next.cells, &shape.columns, &mut means, ahead);
            Ok(())
        } else {
            self.replace(value, next, names, &mut means)
        };
        before.clear();
        self.means = before;
        updated
    }

    /// Replaces the numbers of cells that stay, from a place on. `means` has the means of those
    /// that are watched.
    #[expect(clippy::indexing_slicing, reason = "each cell has all three")]
    fn put_kept(
        &mut self,
        value: &mut Flat,
        at: usize,
        cells: &[u64],
        columns: &[Column],
        means: &mut slice::Iter<'_, i64>,
        mut ahead: NextFlat<'_>,
    ) {
        let end = at + cells.len();
        let (known, known_rest) = value.cells[at..end].as_chunks_mut::<CHUNK>();
        let (watched, watched_rest) = value.watched[at..end].as_chunks_mut::<CHUNK>();
        let (cells, cells_rest) = cells.as_chunks::<CHUNK>();
        let (columns, columns_rest) = columns.as_chunks::<CHUNK>();
        let mut kept = Kept {
            before: means,
            means: &mut value.means,
            runs: &mut self.runs,
            columns: &mut self.columns,
            quiet: self.quiet,
        };
        let chunks = known.iter_mut().zip(watched).zip(cells).zip(columns);
        for (((known, watched), cells), columns) in chunks {
            ahead.chunk(CHUNK);
            kept.put(
                active(known, watched, cells),
                known,
                watched,
                cells,
                columns,
            );
        }
        ahead.chunk(CHUNK);
        let active = active(known_rest, watched_rest, cells_rest);
        kept.put(active, known_rest, watched_rest, cells_rest, columns_rest);
        self.quiet = kept.quiet;
    }

    /// Replaces a value whose structure differs.
    #[expect(clippy::indexing_slicing, reason = "positions that it counted in them")]
    fn replace(
        &mut self,
        value: &mut Flat,
        next: &Flattened,
        names: &Dictionary,
        means: &mut slice::Iter<'_, i64>,
    ) -> Result<(), Broken> {
        let shape = self.shapes.get(&next.tokens, names).ok_or(Broken)?;
        let columns = &shape.columns;
        self.columns.grow_to(names.column_count());
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
        let replaced = first..value.cells.len() - (next.cells.len() - last);
        let watched = &value.watched[replaced.clone()];
        let watched = watched.iter().filter(|watched| **watched != 0).count();
        let head = &next.cells[..first];
        self.put_kept(
            value,
            0,
            head,
            &columns[..first],
            means,
            NextFlat::default(),
        );
        means.by_ref().take(watched).for_each(drop);
        let new = &next.cells[first..last];
        for (cell, column) in new.iter().zip(&columns[first..last]) {
            // Values that follow each other in a structure have little in common.
            self.columns.put(*column, cell.cast_signed(), 0);
        }
        value.cells.splice(replaced.clone(), new.iter().copied());
        value.watched.splice(replaced, repeat_n(0, new.len()));
        let rest = &next.cells[last..];
        self.put_kept(
            value,
            last,
            rest,
            &columns[last..],
            means,
            NextFlat::default(),
        );
        value.shape = shape;
        Ok(())
    }
}

/// Cells that stay.
struct Kept<'a, 'm> {
    /// The means before of those that are watched.
    before: &'a mut slice::Iter<'m, i64>,
    means: &'a mut Vec<i64>,
    runs: &'a mut Vec<u8>,
    columns: &'a mut Columns,
    quiet: u64,
}

impl Kept<'_, '_> {
    /// Replaces the numbers of at most [`CHUNK`] cells, of which some are active.
    #[expect(clippy::inline_always, reason = "places in an array need no check")]
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "each cell has all of them")]
    fn put(
        &mut self,
        mut active: u64,
        known: &mut [u64],
        watched: &mut [u8],
        cells: &[u64],
        columns: &[Column],
    ) {
        let mut next = 0;
        // Apart, so that they stay in registers.
        let (mut before, mut quiet) = (self.before.clone(), self.quiet);
        while active != 0 {
            let at = active.trailing_zeros() as usize;
            active &= active - 1;
            quiet += (at - next) as u64;
            next = at + 1;
            let was_watched = watched[at];
            let difference = cells[at].wrapping_sub(known[at]).cast_signed();
            known[at] = cells[at];
            let mean = if was_watched == 0 {
                put(self.runs, quiet);
                quiet = 0;
                0
            } else {
                before.next().copied().unwrap_or_default()
            };
            // Most active cells move in each reading.
            let is_watched = was_watched == WATCHED && difference != 0 || {
                watched[at] = still_watched(was_watched, difference);
                watched[at] != 0
            };
            if is_watched {
                self.means.push(next_mean(was_watched, mean, difference));
            }
            self.columns.put(columns[at], difference, mean);
        }
        *self.before = before;
        self.quiet = quiet + (cells.len() - next) as u64;
    }
}

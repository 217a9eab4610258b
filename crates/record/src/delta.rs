//! The difference of two flat values, as [`crate::update`] writes it.
//!
//! ```text
//! layout:  0                                     same structure
//!          1, tokens kept at the start, tokens kept at the end, new tokens between them
//! runs:    the number of quiet cells in front of each one that wakes, and behind the last one
//! columns: the differences of new cells, and of others without the quiet ones
//! ```
//!
//! A cell is quiet if it stays, and stayed for some readings. So a node with steady load has
//! few runs.

use std::sync::Arc;

use crate::columns;
use crate::dictionary::Dictionary;
use crate::flat::{Flat, Known, Token, next_mean, still_watched};
use crate::shape::{Column, Shapes};
use crate::varint::Bytes;

/// What is left of the streams of a frame.
#[derive(Debug)]
pub(crate) struct Reading<'b, 'e> {
    pub(crate) layout: Bytes<'b>,
    pub(crate) runs: Bytes<'b>,
    pub(crate) columns: columns::Reading<'b, 'e>,
    /// Quiet cells in front of the next one that wakes.
    pub(crate) quiet: u64,
}

impl Reading<'_, '_> {
    /// The value that has the next difference to `before`; `None` if the streams are broken.
    pub(crate) fn next(
        &mut self,
        before: &Flat,
        shapes: &mut Shapes,
        names: &Dictionary,
    ) -> Option<Flat> {
        let tokens = &before.shape.tokens;
        let (shape, first, last) = match self.layout.number()? {
            0 => (
                Arc::clone(&before.shape),
                before.cells.len(),
                before.cells.len(),
            ),
            1 => {
                let (start, between, end) = self.structure()?;
                let (head, rest) = tokens.split_at_checked(start)?;
                let (_, kept) = rest.split_at_checked(rest.len().checked_sub(end)?)?;
                let shape = shapes.get(&[head, &between, kept].concat(), names)?;
                let first = Flat::cells_of(head);
                let last = before.cells.len().checked_sub(Flat::cells_of(kept))?;
                (shape, first, last)
            }
            _ => return None,
        };
        let count = shape.columns.len();
        let mut value = Flat {
            shape: Arc::clone(&shape),
            cells: Vec::with_capacity(count),
            watched: Vec::with_capacity(count),
            means: Vec::with_capacity(before.means.len()),
        };
        let mut columns = shape.columns.iter();
        let mut known = before.known();
        for cell in known.by_ref().take(first) {
            self.kept(cell?, *columns.next()?, &mut value)?;
        }
        // The replaced ones.
        known.by_ref().take(last - first).for_each(drop);
        let new = columns.len().checked_sub(before.cells.len() - last)?;
        for column in columns.by_ref().take(new) {
            let difference = self.columns.next(*column, 0)?;
            value.put(difference.cast_unsigned(), 0, 0);
        }
        for (cell, column) in known.zip(columns) {
            self.kept(cell?, *column, &mut value)?;
        }
        (value.cells.len() == count).then_some(value)
    }

    fn structure(&mut self) -> Option<(usize, Vec<Token>, usize)> {
        let start = usize::try_from(self.layout.number()?).ok()?;
        let end = usize::try_from(self.layout.number()?).ok()?;
        let count = self.layout.count()?;
        let between = (0..count).map(|_| Token::try_from(self.layout.number()?).ok());
        Some((start, between.collect::<Option<_>>()?, end))
    }

    /// The next number of a cell that was there before.
    fn kept(&mut self, known: Known, column: Column, to: &mut Flat) -> Option<()> {
        let Known {
            cell,
            watched,
            mean,
        } = known;
        if watched == 0 {
            if self.quiet > 0 {
                self.quiet -= 1;
                to.put(cell, 0, 0);
                return Some(());
            }
            self.quiet = self.runs.number()?;
        }
        let difference = self.columns.next(column, mean)?;
        let mean = next_mean(watched, mean, difference);
        let cell = cell.wrapping_add_signed(difference);
        to.put(cell, still_watched(watched, difference), mean);
        Some(())
    }

    /// Whether all was read.
    pub(crate) fn is_empty(&self) -> bool {
        let streams = [self.layout, self.runs];
        self.quiet == 0 && self.columns.is_empty() && streams.iter().all(|left| left.0.is_empty())
    }
}

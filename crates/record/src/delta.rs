//! The difference of two flat values, as [`crate::update`] writes it.
//!
//! ```text
//! layout: 0                                     same structure
//!         1, tokens kept at the start, tokens kept at the end, new tokens between them
//! runs:   the number of quiet cells in front of each one that wakes, and behind the last one
//! codes:  of new cells; of those that wake; of the others without the quiet ones, as the
//!         difference to the code that the cell had before
//! ```
//!
//! A cell is quiet if it stays, and stayed the time before. So a node with steady load has few
//! runs, and codes that are nearly all 0.

use crate::bits::{self, Differences};
use crate::flat::{Flat, Token};
use crate::varint::Bytes;

/// The streams of a frame. Each compresses better alone.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) layout: Vec<u8>,
    pub(crate) runs: Vec<u8>,
    pub(crate) codes: Vec<u8>,
    pub(crate) cells: Differences,
}

impl Streams {
    pub(crate) fn clear(&mut self) {
        self.layout.clear();
        self.runs.clear();
        self.codes.clear();
        self.cells.clear();
    }
}

/// What is left of the streams of a frame.
#[derive(Debug)]
pub(crate) struct Reading<'b> {
    pub(crate) layout: Bytes<'b>,
    pub(crate) runs: Bytes<'b>,
    pub(crate) codes: Bytes<'b>,
    pub(crate) cells: bits::Reading<'b>,
}

impl Reading<'_> {
    /// The value that has the next difference to `before`; `None` if the streams are broken.
    pub(crate) fn next(&mut self, before: &Flat) -> Option<Flat> {
        let (start, between, end) = match self.layout.number()? {
            0 => (before.tokens.len(), Vec::new(), 0),
            1 => self.structure()?,
            _ => return None,
        };
        let (head, rest) = before.tokens.split_at_checked(start)?;
        let (_, kept) = rest.split_at_checked(rest.len().checked_sub(end)?)?;
        let first = Flat::cells_of(head);
        let last = before.cells.len().checked_sub(Flat::cells_of(kept))?;
        let new = Flat::cells_of(&between);
        let mut value = Flat {
            tokens: [head, &between, kept].concat(),
            cells: Vec::with_capacity(first + new + before.cells.len() - last),
            codes: Vec::new(),
        };
        let mut quiet = self.runs.number()?;
        for at in 0..first {
            self.kept(before, at, &mut quiet, &mut value)?;
        }
        for _ in 0..new {
            let code = self.code()?;
            value.put(self.cells.next(code, 0)?, code);
        }
        for at in last..before.cells.len() {
            self.kept(before, at, &mut quiet, &mut value)?;
        }
        (quiet == 0).then_some(value)
    }

    fn structure(&mut self) -> Option<(usize, Vec<Token>, usize)> {
        let start = usize::try_from(self.layout.number()?).ok()?;
        let end = usize::try_from(self.layout.number()?).ok()?;
        let count = self.layout.count()?;
        let between = (0..count).map(|_| Token::try_from(self.layout.number()?).ok());
        Some((start, between.collect::<Option<_>>()?, end))
    }

    fn code(&mut self) -> Option<u8> {
        self.codes.0.split_off_first().copied()
    }

    /// The next number of a cell that was there before.
    fn kept(&mut self, before: &Flat, at: usize, quiet: &mut u64, to: &mut Flat) -> Option<()> {
        let (cell, code) = (*before.cells.get(at)?, *before.codes.get(at)?);
        if code == 0 && *quiet > 0 {
            *quiet -= 1;
            to.put(cell, 0);
            return Some(());
        }
        let next = code.wrapping_add(self.code()?);
        if code == 0 {
            *quiet = self.runs.number()?;
        }
        to.put(self.cells.next(next, cell)?, next);
        Some(())
    }
}

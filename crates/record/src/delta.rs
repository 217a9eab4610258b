//! The difference of two flat values.
//!
//! ```text
//! layout: 0                                     same structure
//!         1, tokens kept at the start, tokens kept at the end, new tokens between them
//! runs:   (number of equal cells, number of others)…
//! cells:  the differences of the others
//! ```

use crate::bits::{self, Differences};
use crate::flat::{Flat, Token};
use crate::varint::{Bytes, put, put_len};

/// The streams of a frame. Each compresses better alone.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) layout: Vec<u8>,
    pub(crate) runs: Vec<u8>,
    pub(crate) cells: Differences,
}

impl Streams {
    pub(crate) fn clear(&mut self) {
        self.layout.clear();
        self.runs.clear();
        self.cells.clear();
    }
}

/// Appends the difference from `before` to `now`.
#[expect(clippy::indexing_slicing, reason = "positions that it counted in them")]
pub(crate) fn write(before: &Flat, now: &Flat, to: &mut Streams) {
    if before.tokens == now.tokens {
        put(&mut to.layout, 0);
        write_cells(&before.cells, &now.cells, to);
        return;
    }
    let pairs = before.tokens.iter().zip(&now.tokens);
    let start = pairs.take_while(|(before, now)| before == now).count();
    let (old, new) = (&before.tokens[start..], &now.tokens[start..]);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let end = pairs.take_while(|(before, now)| before == now).count();
    put(&mut to.layout, 1);
    put_len(&mut to.layout, start);
    put_len(&mut to.layout, end);
    let between = &new[..new.len() - end];
    put_len(&mut to.layout, between.len());
    for token in between {
        put(&mut to.layout, (*token).into());
    }
    let first = Flat::cells_of(&now.tokens[..start]);
    let last = Flat::cells_of(&new[new.len() - end..]);
    let (head, rest) = now.cells.split_at(first);
    let (middle, tail) = rest.split_at(rest.len() - last);
    write_cells(&before.cells[..first], head, to);
    // Values that follow each other in a structure have little in common.
    for cell in middle {
        to.cells.put(0, *cell);
    }
    write_cells(&before.cells[before.cells.len() - last..], tail, to);
}

/// Both slices have the same length.
#[expect(clippy::indexing_slicing, reason = "positions that it counted in them")]
fn write_cells(before: &[u64], now: &[u64], to: &mut Streams) {
    let mut at = 0;
    while at < now.len() {
        let pairs = || before[at..].iter().zip(&now[at..]);
        let equal = pairs().take_while(|(before, now)| before == now).count();
        let from = at + equal;
        let pairs = || before[from..].iter().zip(&now[from..]);
        let others = pairs().take_while(|(before, now)| before != now).count();
        put_len(&mut to.runs, equal);
        put_len(&mut to.runs, others);
        for (before, now) in pairs().take(others) {
            to.cells.put(*before, *now);
        }
        at = from + others;
    }
}

/// What is left of the streams of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'b> {
    pub(crate) layout: Bytes<'b>,
    pub(crate) runs: Bytes<'b>,
    pub(crate) cells: bits::Reading<'b>,
}

impl Reading<'_> {
    /// The value that has the next difference to `before`; `None` if the streams are broken.
    pub(crate) fn next(&mut self, before: &Flat) -> Option<Flat> {
        match self.layout.number()? {
            0 => {
                let mut cells = Vec::with_capacity(before.cells.len());
                self.cells_like(&before.cells, &mut cells)?;
                let tokens = before.tokens.clone();
                Some(Flat { tokens, cells })
            }
            1 => self.changed(before),
            _ => None,
        }
    }

    fn changed(&mut self, before: &Flat) -> Option<Flat> {
        let start = usize::try_from(self.layout.number()?).ok()?;
        let end = usize::try_from(self.layout.number()?).ok()?;
        let (head, rest) = before.tokens.split_at_checked(start)?;
        let (_, kept) = rest.split_at_checked(rest.len().checked_sub(end)?)?;
        let count = self.layout.count()?;
        let between = (0..count).map(|_| Token::try_from(self.layout.number()?).ok());
        let between: Vec<Token> = between.collect::<Option<_>>()?;
        let (first, last) = (Flat::cells_of(head), Flat::cells_of(kept));
        let (head_cells, rest) = before.cells.split_at_checked(first)?;
        let (_, kept_cells) = rest.split_at_checked(rest.len().checked_sub(last)?)?;
        let mut cells = Vec::with_capacity(first + between.len() + last);
        self.cells_like(head_cells, &mut cells)?;
        for _ in 0..Flat::cells_of(&between) {
            cells.push(self.cells.next(0)?);
        }
        self.cells_like(kept_cells, &mut cells)?;
        let tokens = [head, &between, kept].concat();
        Some(Flat { tokens, cells })
    }

    fn cells_like(&mut self, before: &[u64], to: &mut Vec<u64>) -> Option<()> {
        let mut left = before;
        while !left.is_empty() {
            let equal = usize::try_from(self.runs.number()?).ok()?;
            let others = usize::try_from(self.runs.number()?).ok()?;
            if equal == 0 && others == 0 {
                return None;
            }
            to.extend_from_slice(left.split_off(..equal)?);
            for before in left.split_off(..others)? {
                to.push(self.cells.next(*before)?);
            }
        }
        Some(())
    }
}

//! Turns a flat value into the next one, and writes the difference, in one go.
//!
//! Most values of a reading are those of the reading before, so they are only compared.

use crate::delta::Streams;
use crate::flat::{Flat, Token, has_cell};
use crate::varint::{put, put_len};

/// A value that is being replaced.
pub(crate) struct Update<'u> {
    value: &'u mut Flat,
    to: &'u mut Streams,
    /// Tokens of the value that stay, so far.
    tokens: usize,
    /// Cells of these tokens.
    cells: usize,
    /// Quiet cells since the last one that woke.
    quiet: u64,
    /// What replaces the rest of the value, from the first token on that differs.
    rest: Option<Rest>,
}

#[derive(Default)]
struct Rest {
    tokens: Vec<Token>,
    cells: Vec<u64>,
}

impl<'u> Update<'u> {
    pub(crate) fn of(value: &'u mut Flat, to: &'u mut Streams) -> Self {
        Self {
            value,
            to,
            tokens: 0,
            cells: 0,
            quiet: 0,
            rest: None,
        }
    }

    /// Adds a token with its cell.
    #[inline]
    pub(crate) fn put(&mut self, token: Token, cell: u64) {
        if self.is_next(token) {
            let at = self.cells;
            self.tokens += 1;
            self.cells += 1;
            self.put_kept(at, cell);
        } else {
            let rest = self.rest.get_or_insert_default();
            rest.tokens.push(token);
            rest.cells.push(cell);
        }
    }

    /// Adds a token without a cell.
    #[inline]
    pub(crate) fn put_bare(&mut self, token: Token) {
        if self.is_next(token) {
            self.tokens += 1;
        } else {
            self.rest.get_or_insert_default().tokens.push(token);
        }
    }

    /// Adds the token of a new struct, which is known later; returns its place.
    pub(crate) fn put_new(&mut self, token: Token) -> usize {
        let rest = self.rest.get_or_insert_default();
        rest.tokens.push(token);
        rest.tokens.len() - 1
    }

    /// Replaces the token at a place of [`Self::put_new`].
    pub(crate) fn set_new(&mut self, place: usize, token: Token) {
        let rest = self.rest.get_or_insert_default();
        if let Some(known) = rest.tokens.get_mut(place) {
            *known = token;
        }
    }

    fn is_next(&self, token: Token) -> bool {
        self.rest.is_none() && self.value.tokens.get(self.tokens) == Some(&token)
    }

    /// Replaces the number of a cell that stays.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a token with a cell was there")]
    fn put_kept(&mut self, at: usize, cell: u64) {
        let (known, code) = (&mut self.value.cells[at], &mut self.value.codes[at]);
        if *known == cell && *code == 0 {
            self.quiet += 1;
            return;
        }
        let next = self.to.cells.put(*known, cell);
        if *code == 0 {
            put(&mut self.to.runs, self.quiet);
            self.quiet = 0;
        }
        self.to.codes.push(next.wrapping_sub(*code));
        (*known, *code) = (cell, next);
    }

    /// Ends the value.
    pub(crate) fn finish(mut self) {
        if self.rest.is_none() && self.tokens == self.value.tokens.len() {
            put(&mut self.to.layout, 0);
        } else {
            let rest = self.rest.take().unwrap_or_default();
            self.replace(&rest);
        }
        put(&mut self.to.runs, self.quiet);
    }

    /// Replaces the value from the first token on that differs.
    #[expect(clippy::indexing_slicing, reason = "positions that it counted in them")]
    fn replace(&mut self, new: &Rest) {
        let old = &self.value.tokens[self.tokens..];
        let pairs = old.iter().rev().zip(new.tokens.iter().rev());
        let end = pairs.take_while(|(old, new)| old == new).count();
        let (between, kept) = new.tokens.split_at(new.tokens.len() - end);
        let layout = &mut self.to.layout;
        put(layout, 1);
        for len in [self.tokens, end, between.len()] {
            put_len(layout, len);
        }
        for token in between {
            put(layout, (*token).into());
        }

        let last = kept.iter().filter(|token| has_cell(**token)).count();
        let (cells, kept_cells) = new.cells.split_at(new.cells.len() - last);
        let codes = cells.iter().map(|cell| {
            // Values that follow each other in a structure have little in common.
            let code = self.to.cells.put(0, *cell);
            self.to.codes.push(code);
            code
        });
        let codes: Vec<u8> = codes.collect();
        let replaced = self.cells..self.value.cells.len() - last;
        self.value
            .cells
            .splice(replaced.clone(), cells.iter().copied());
        self.value.codes.splice(replaced, codes);
        let behind = self.value.cells.len() - last;
        for (at, cell) in (behind..).zip(kept_cells) {
            self.put_kept(at, *cell);
        }
        let replaced = self.tokens..self.value.tokens.len() - end;
        let between = between.iter().copied();
        self.value.tokens.splice(replaced, between);
    }
}

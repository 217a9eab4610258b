//! Values of which some are absent, and values that rows share.

use std::sync::Arc;

use virtlens_model::vocab::CpuSet;

use crate::flat::{NULL, Token};
use crate::flatten::Flatten;

/// The cells of a row, and a bit for each value that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sparse<const LEN: usize> {
    /// 0 for a value that is absent.
    pub(super) cells: [u64; LEN],
    pub(super) known: u32,
}

impl<const LEN: usize> Sparse<LEN> {
    #[inline]
    pub(super) fn of(values: [Option<u64>; LEN]) -> Self {
        let (mut cells, mut known) = ([0; LEN], 0);
        for ((cell, value), at) in cells.iter_mut().zip(&values).zip(0..) {
            *cell = value.unwrap_or(0);
            known |= u32::from(value.is_some()) << at;
        }
        Self { cells, known }
    }

    /// The tokens of values of these kinds.
    pub(super) fn tokens(&self, kinds: [Token; LEN]) -> [Token; LEN] {
        let mut tokens = kinds;
        for (token, at) in tokens.iter_mut().zip(0..) {
            if self.known >> at & 1 == 0 {
                *token = NULL;
            }
        }
        tokens
    }

    /// Adds values of these kinds.
    pub(super) fn put(&self, to: &mut Flatten<'_>, kinds: [Token; LEN]) {
        to.to.tokens.extend_from_slice(&self.tokens(kinds));
        to.to.cells.extend_from_slice(&self.cells);
    }
}

/// The last value of a field with its cell. The next row mostly has the same one.
#[derive(Debug)]
pub(super) struct Last<T>(Option<(T, u64)>);

impl<T: Copy> Last<T> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// The cell of the next value.
    #[expect(clippy::inline_always, reason = "a call would take longer than it")]
    #[inline(always)]
    fn cell(
        &mut self,
        value: Option<T>,
        is_same: impl Fn(T, T) -> bool,
        cell_of: impl FnOnce(T) -> u64,
    ) -> Option<u64> {
        let value = value?;
        if let Some((last, cell)) = self.0
            && is_same(last, value)
        {
            return Some(cell);
        }
        let cell = cell_of(value);
        self.0 = Some((value, cell));
        Some(cell)
    }
}

impl<T: Copy + PartialEq> Last<T> {
    /// The cell of a constant for the place `at`.
    #[inline]
    pub(super) fn constant(
        &mut self,
        to: &mut Flatten<'_>,
        value: Option<T>,
        name: impl Fn(T) -> &'static str,
        at: usize,
    ) -> Option<u64> {
        self.cell(
            value,
            |last, value| last == value,
            |value| {
                let probably = to.probably(at);
                to.names.constant(name(value), probably)
            },
        )
    }
}

impl<'a> Last<&'a Arc<CpuSet>> {
    /// The cell of a set of CPUs for the place `at`.
    #[inline]
    pub(super) fn cpu_set(
        &mut self,
        to: &mut Flatten<'_>,
        set: Option<&'a Arc<CpuSet>>,
        at: usize,
    ) -> Option<u64> {
        self.cell(set, Arc::ptr_eq, |set| {
            let probably = to.probably(at);
            to.names.cpu_set(set, probably)
        })
    }
}

impl<'a> Last<&'a Arc<str>> {
    /// The cell of a text that readings share, for the place `at`.
    #[inline]
    pub(super) fn shared(
        &mut self,
        to: &mut Flatten<'_>,
        text: Option<&'a Arc<str>>,
        at: usize,
    ) -> Option<u64> {
        self.cell(text, Arc::ptr_eq, |text| {
            let probably = to.probably(at);
            to.names.shared(text, probably)
        })
    }
}

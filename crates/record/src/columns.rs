//! The codes of the differences of a frame, by column.
//!
//! The differences of a field resemble each other more than those of a structure, so each column
//! has its own statistics: long ones are compressed apart.
//!
//! Some counters rise by the same amount each time, others by chance. The expected difference of
//! a cell is the last one if that shortens the differences of its column, otherwise 0.
//!
//! ```text
//! in the head:     columns that change their kind of expectation
//!                  columns with codes, and the number of their codes; for each long one 0, or
//!                  which earlier one has the same codes, counted from 1
//!                  codes of short columns
//! behind the head: codes of the other long columns
//! ```

use crate::shape::Column;
use crate::varint::{Bytes, put_len};

/// Codes of the shortest column that is compressed apart: the code that zstd makes for them has
/// some thirty bytes.
const LONG: usize = 96;

/// The columns of a frame that is being written.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    all: Vec<Written>,
    /// Columns that changed their kind of expectation behind the last frame.
    changed: Vec<usize>,
    /// Values so far, of this frame and those before it.
    values: usize,
    /// Whether the differences of this value count for the kind of expectation.
    is_sample: bool,
}

/// One value in this many is a sample.
const SAMPLE: usize = 8;

#[derive(Debug, Default)]
struct Written {
    codes: Vec<u8>,
    /// Whether the last difference is expected, not 0.
    is_steady: bool,
    /// Bits of the differences, and of the deviations from the last ones. Older ones count less.
    bits: u64,
    steady_bits: u64,
}

impl Columns {
    /// Begins the next frame.
    pub(crate) fn clear(&mut self) {
        self.changed.clear();
        for (number, column) in self.all.iter_mut().enumerate() {
            column.codes.clear();
            let (bits, steady_bits) = (column.bits, column.steady_bits);
            // A column that deviates both ways needs more different codes.
            let is_steady = steady_bits + steady_bits / 16 < bits;
            if is_steady != column.is_steady {
                column.is_steady = is_steady;
                self.changed.push(number);
            }
            column.bits -= bits.div_ceil(4);
            column.steady_bits -= steady_bits.div_ceil(4);
        }
    }

    /// Forgets all columns.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Begins the next value. A node of `count` values may have few.
    pub(crate) fn begin_value(&mut self, count: usize) {
        self.values = self.values.wrapping_add(1);
        self.is_sample = count < 2 * SAMPLE || self.values.is_multiple_of(SAMPLE);
    }

    /// Makes room for columns.
    pub(crate) fn grow_to(&mut self, count: usize) {
        self.all
            .resize_with(count.max(self.all.len()), Written::default);
    }

    /// Adds the code of a difference, which is made with the expected one.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "there is room for the columns of each shape"
    )]
    pub(crate) fn put(
        &mut self,
        column: Column,
        difference: i64,
        last: i64,
        code: impl FnOnce(i64) -> u8,
    ) {
        let column = &mut self.all[column as usize];
        if self.is_sample {
            column.bits += length(difference);
            column.steady_bits += length(difference.wrapping_sub(last));
        }
        let expected = if column.is_steady { last } else { 0 };
        column.codes.push(code(expected));
    }

    /// Writes the part of the columns that is in the head.
    pub(crate) fn write_head(&self, head: &mut Vec<u8>) {
        put_len(head, self.changed.len());
        let mut next = 0;
        for number in &self.changed {
            put_len(head, number - next);
            next = number + 1;
        }
        put_len(head, self.used().count());
        let mut next = 0;
        for (number, codes) in self.used() {
            put_len(head, number - next);
            put_len(head, codes.len());
            if is_long(codes.len()) {
                put_len(head, self.same_as(codes).map_or(0, |same| same + 1));
            }
            next = number + 1;
        }
        for (_, codes) in self.used().filter(|(_, codes)| !is_long(codes.len())) {
            head.extend_from_slice(codes);
        }
    }

    /// The codes of each long column that differs from those before it.
    pub(crate) fn long(&self) -> impl Iterator<Item = &[u8]> {
        self.all_long()
            .filter(|codes| self.same_as(codes).is_none())
    }

    /// The number of the first long column before this one that has the same codes: a vCPU and
    /// its thread move at once.
    fn same_as(&self, codes: &[u8]) -> Option<usize> {
        let mut before = self.all_long().take_while(|one| !std::ptr::eq(*one, codes));
        before.position(|one| one == codes)
    }

    fn all_long(&self) -> impl Iterator<Item = &[u8]> {
        let codes = self.used().map(|(_, codes)| codes);
        codes.filter(|codes| is_long(codes.len()))
    }

    fn used(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let codes = self.all.iter().map(|column| &column.codes[..]).enumerate();
        codes.filter(|(_, codes)| !codes.is_empty())
    }
}

fn is_long(codes: usize) -> bool {
    codes >= LONG
}

fn length(difference: i64) -> u64 {
    (u64::BITS - difference.unsigned_abs().leading_zeros()).into()
}

/// The columns of a recording that is being read.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Whether the last difference of a column is expected, not 0.
    is_steady: Vec<bool>,
}

impl Expected {
    /// Reads the columns of a frame; `None` if they are broken.
    pub(crate) fn read<'b>(
        &mut self,
        head: &mut Bytes<'b>,
        mut long: Bytes<'b>,
        count: usize,
    ) -> Option<Reading<'b, '_>> {
        self.is_steady.resize(count, false);
        let mut next = 0;
        for _ in 0..head.count()? {
            let number = usize::try_from(head.number()?).ok()?.checked_add(next)?;
            let is_steady = self.is_steady.get_mut(number)?;
            *is_steady = !*is_steady;
            next = number + 1;
        }
        let mut used = Vec::new();
        let mut next = 0;
        for _ in 0..head.count()? {
            let number = usize::try_from(head.number()?).ok()?.checked_add(next)?;
            if number >= count {
                return None;
            }
            let len = usize::try_from(head.number()?).ok()?;
            let same_as = if is_long(len) { head.number()? } else { 0 };
            used.push((number, len, usize::try_from(same_as).ok()?));
            next = number + 1;
        }
        let mut codes = vec![Bytes(&[]); count];
        let mut all_long = Vec::new();
        for (number, len, same_as) in used {
            let one = match same_as.checked_sub(1) {
                Some(same) => *all_long.get(same)?,
                None if is_long(len) => Bytes(long.take(len)?),
                None => Bytes(head.take(len)?),
            };
            if is_long(len) {
                all_long.push(one);
            }
            *codes.get_mut(number)? = one;
        }
        long.0.is_empty().then_some(Reading {
            codes,
            is_steady: &self.is_steady,
        })
    }
}

/// The codes of a frame that are left.
#[derive(Debug)]
pub(crate) struct Reading<'b, 'e> {
    codes: Vec<Bytes<'b>>,
    is_steady: &'e [bool],
}

impl Reading<'_, '_> {
    /// The next code of a column, and the expected difference; `None` at the end.
    pub(crate) fn next(&mut self, column: Column, last: i64) -> Option<(u8, i64)> {
        let number = column as usize;
        let code = self.codes.get_mut(number)?.0.split_off_first()?;
        let expected = if *self.is_steady.get(number)? {
            last
        } else {
            0
        };
        Some((*code, expected))
    }

    /// Whether all codes were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.codes.iter().all(|codes| codes.0.is_empty())
    }
}

//! The codes and bits of the differences of a frame, by column.
//!
//! The differences of a field resemble each other more than those of a structure, so each column
//! has its own statistics: long ones are compressed apart. The values of a column also take mostly
//! the same branches of the encoder.
//!
//! Some counters rise by a similar amount each time, others by chance. The expected difference of
//! a cell is the mean of its last ones if that would have shortened the differences of its column
//! in the frame before, otherwise 0.
//!
//! ```text
//! in the head:     columns that change their kind of expectation
//!                  columns with codes, and the number of their codes; for each long one 0, or
//!                  which earlier one has the same codes, counted from 1
//!                  codes of short columns
//! behind the head: codes of the other long columns
//! bits:            of all columns, one after the other
//! ```

use std::ops::Range;

use virtlens_model::prefetch::prefetch_slice;

use crate::bits::{Bits, all_bits_of, take};
use crate::shape::Column;
use crate::varint::{Bytes, put_len};

/// Codes of the shortest column that is compressed apart: the code that zstd makes for them has
/// some thirty bytes.
const LONG: usize = 96;

/// The columns of a frame that is being written.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    all: Vec<Written>,
    /// Columns whose kind of expectation differs from that of the frame before.
    changed: Vec<usize>,
    /// Columns that had many differences in the frame before.
    busy: Vec<usize>,
    /// For each long column, once the frame has ended, the number of the first one before it that
    /// has the same codes: a vCPU that halts once for each timer has several counters that rise
    /// equally.
    same_as: Vec<Option<usize>>,
    pub(crate) bits: Bits,
}

#[derive(Debug, Default)]
struct Written {
    /// The differences, or their deviations from the mean.
    deviations: Vec<i64>,
    codes: Vec<u8>,
    /// Whether the mean of the last differences is expected, not 0.
    is_steady: bool,
    /// Length of the first differences, and of their deviations from the mean, bits.
    plain: u32,
    steady: u32,
}

/// Differences in a frame from which on a column is busy: they fill 64 cache lines.
const BUSY: usize = 512;

/// Places behind the last difference that are prefetched: two cache lines. A VM of eight vCPUs adds
/// one to most busy columns.
const AHEAD: Range<usize> = 8..24;

/// Differences of a column by which its kind of expectation in the next frame is judged.
const SAMPLE: usize = 256;

/// Memory for this many times the differences of a frame is kept, the rest is freed: a complete
/// frame has ten times those of others.
const ROOM: usize = 4;

impl Columns {
    /// Begins the next frame.
    pub(crate) fn clear(&mut self) {
        self.changed.clear();
        self.busy.clear();
        self.bits.clear();
        for (number, column) in self.all.iter_mut().enumerate() {
            if column.codes.is_empty() {
                continue;
            }
            if column.codes.len() >= BUSY {
                self.busy.push(number);
            }
            column.deviations.clear();
            column.codes.clear();
            // A column that deviates both ways needs more different codes.
            let is_steady = column.steady + column.steady / 16 < column.plain;
            if is_steady != column.is_steady {
                column.is_steady = is_steady;
                self.changed.push(number);
            }
            (column.plain, column.steady) = (0, 0);
        }
    }

    /// Prefetches the memory of the next differences of busy columns.
    #[inline]
    pub(crate) fn prefetch(&mut self) {
        for number in &self.busy {
            if let Some(column) = self.all.get_mut(*number) {
                let next = column.deviations.spare_capacity_mut();
                prefetch_slice(next.get(AHEAD.clone()).unwrap_or_default());
            }
        }
    }

    /// Forgets all columns.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Makes room for columns.
    pub(crate) fn grow_to(&mut self, count: usize) {
        self.all
            .resize_with(count.max(self.all.len()), Written::default);
    }

    /// Adds the difference of a cell, whose last ones had this mean.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "there is room for the columns of each shape"
    )]
    pub(crate) fn put(&mut self, column: Column, difference: i64, mean: i64) {
        let column = &mut self.all[column as usize];
        let deviation = difference.wrapping_sub(mean);
        if column.deviations.len() < SAMPLE {
            column.plain += length(difference);
            column.steady += length(deviation);
        }
        let is_steady = column.is_steady;
        column
            .deviations
            .push(if is_steady { deviation } else { difference });
    }

    /// Ends the frame.
    pub(crate) fn finish(&mut self) {
        let Self { all, bits, .. } = self;
        for column in all {
            let deviations = &mut column.deviations;
            bits.put(deviations, &mut column.codes);
            if deviations.capacity() / ROOM > deviations.len() {
                deviations.shrink_to(2 * deviations.len());
            }
        }
        bits.finish();
        let long: Vec<&[u8]> = self.all_long().collect();
        let first = |(at, codes)| long.iter().take(at).position(|one| one == codes);
        self.same_as = long.iter().enumerate().map(first).collect();
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
        let mut same_as = self.same_as.iter();
        let mut next = 0;
        for (number, codes) in self.used() {
            put_len(head, number - next);
            put_len(head, codes.len());
            if is_long(codes.len()) {
                let same = same_as.next().copied().flatten();
                put_len(head, same.map_or(0, |same| same + 1));
            }
            next = number + 1;
        }
        for (_, codes) in self.used().filter(|(_, codes)| !is_long(codes.len())) {
            head.extend_from_slice(codes);
        }
    }

    /// The codes of each long column that differs from those before it.
    pub(crate) fn long(&self) -> impl Iterator<Item = &[u8]> {
        let all = self.all_long().zip(&self.same_as);
        all.filter_map(|(codes, same)| same.is_none().then_some(codes))
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

#[inline]
fn length(difference: i64) -> u32 {
    u64::BITS - difference.unsigned_abs().leading_zeros()
}

/// The columns of a recording that is being read.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Whether the mean of the last differences of a column is expected, not 0.
    is_steady: Vec<bool>,
}

impl Expected {
    /// Reads the columns of a frame; `None` if they are broken.
    pub(crate) fn read<'b>(
        &mut self,
        head: &mut Bytes<'b>,
        mut long: Bytes<'b>,
        bits: &'b [u8],
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
        let mut columns = vec![Left::default(); count];
        let mut all_long = Vec::new();
        let mut at = 0;
        for (number, len, same_as) in used {
            let codes = match same_as.checked_sub(1) {
                Some(same) => *all_long.get(same)?,
                None if is_long(len) => long.take(len)?,
                None => head.take(len)?,
            };
            if is_long(len) {
                all_long.push(codes);
            }
            *columns.get_mut(number)? = Left { codes, at };
            at += all_bits_of(codes)?;
        }
        let is_all = long.0.is_empty() && at.div_ceil(8) == bits.len();
        is_all.then_some(Reading {
            columns,
            is_steady: &self.is_steady,
            bits,
        })
    }
}

/// The differences of a frame that are left.
#[derive(Debug)]
pub(crate) struct Reading<'b, 'e> {
    columns: Vec<Left<'b>>,
    is_steady: &'e [bool],
    bits: &'b [u8],
}

/// Those of a column.
#[derive(Debug, Clone, Default)]
struct Left<'b> {
    codes: &'b [u8],
    /// Position in the bits.
    at: usize,
}

impl Reading<'_, '_> {
    /// The next difference of a column, for a cell whose last ones had this
    /// mean; `None` at the end.
    pub(crate) fn next(&mut self, column: Column, mean: i64) -> Option<i64> {
        let number = column as usize;
        let column = self.columns.get_mut(number)?;
        let code = column.codes.split_off_first()?;
        let deviation = take(self.bits, &mut column.at, *code)?;
        let is_steady = *self.is_steady.get(number)?;
        Some(deviation.wrapping_add(if is_steady { mean } else { 0 }))
    }

    /// Whether all were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.iter().all(|column| column.codes.is_empty())
    }
}

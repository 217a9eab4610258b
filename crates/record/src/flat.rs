//! A value as two rows: the tokens of its structure, and a cell for each of its values.
//!
//! The structure of a VM rarely changes between two readings, and most of its values do not
//! change either. So the difference of two readings is short, and is found without knowledge
//! of the types.

use std::sync::Arc;

use crate::shape::Shape;

/// A token of a structure. Numbers from [`STRUCT`] on are structs.
pub(crate) type Token = u16;

/// No value, with a cell that is 0, so that the cells behind it keep their places when it
/// becomes one.
pub(crate) const NULL: Token = 0;
/// A truth value: 0 or 1.
pub(crate) const BOOL: Token = 1;
/// A number that is not negative.
pub(crate) const UNSIGNED: Token = 2;
/// A number, in two's complement.
pub(crate) const SIGNED: Token = 3;
/// The bits of a floating-point number.
pub(crate) const FLOAT: Token = 4;
/// A floating-point number with at most six decimal places, in millionths, in two's
/// complement.
pub(crate) const MILLIONTHS: Token = 5;
/// The same in thousandths. Shares have three decimal places at most.
pub(crate) const THOUSANDTHS: Token = 6;
/// A text: its number in the dictionary.
pub(crate) const TEXT: Token = 7;
/// Bytes: their number in the dictionary.
pub(crate) const BYTES: Token = 8;
/// A number that is not negative and that an earlier cell of the value has: the distance to that
/// cell. So a number that changes is compared and written once.
pub(crate) const REPEATED: Token = 9;
/// The start of a sequence, which ends with [`END`].
pub(crate) const SEQ: Token = 10;
/// The start of a map, of keys and values in turn, which ends with [`END`].
pub(crate) const MAP: Token = 11;
/// The end of the innermost sequence or map.
pub(crate) const END: Token = 12;
/// The first struct of the dictionary. Its values follow in the order of its fields.
pub(crate) const STRUCT: Token = 16;

/// Whether a token has a cell.
#[inline]
pub(crate) fn has_cell(token: Token) -> bool {
    token <= REPEATED
}

/// Readings for which a cell that moved is watched. Then it is quiet, until it moves again.
pub(crate) const WATCHED: u8 = 4;

/// A value.
#[derive(Debug, Default)]
pub(crate) struct Flat {
    /// The structure.
    pub(crate) shape: Arc<Shape>,
    /// The values of the tokens that have one, in their order.
    pub(crate) cells: Vec<u64>,
    /// Readings for which each cell is still watched; 0 if it is quiet.
    pub(crate) watched: Vec<u8>,
    /// The mean of the last differences of each watched cell, in their order.
    pub(crate) means: Vec<i64>,
}

/// A cell as it was before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) cell: u64,
    /// See [`Flat::watched`].
    pub(crate) watched: u8,
    /// The mean of its last differences; 0 if it is quiet.
    pub(crate) mean: i64,
}

impl Flat {
    /// Adds a cell.
    pub(crate) fn put(&mut self, cell: u64, watched: u8, mean: i64) {
        self.cells.push(cell);
        self.watched.push(watched);
        if watched != 0 {
            self.means.push(mean);
        }
    }

    /// Its cells. One without its mean is `None`, which would be a bug.
    pub(crate) fn known(&self) -> impl Iterator<Item = Option<Known>> {
        let mut means = self.means.iter();
        let cells = self.cells.iter().zip(&self.watched);
        cells.map(move |(cell, watched)| {
            let mean = match watched {
                0 => 0,
                _ => *means.next()?,
            };
            Some(Known {
                cell: *cell,
                watched: *watched,
                mean,
            })
        })
    }

    /// Number of its tokens and cells.
    pub(crate) fn values(&self) -> usize {
        self.shape.tokens.len() + self.cells.len()
    }

    /// Number of cells of some tokens.
    pub(crate) fn cells_of(tokens: &[Token]) -> usize {
        tokens.iter().filter(|token| has_cell(**token)).count()
    }
}

/// Readings for which a cell is watched after this difference.
#[inline]
pub(crate) fn still_watched(watched: u8, difference: i64) -> u8 {
    if difference == 0 {
        watched.saturating_sub(1)
    } else {
        WATCHED
    }
}

/// The mean of the last differences of a cell, including this one. They count half, a quarter and
/// so on, the last one most. The difference of a cell that wakes is its mean.
#[inline]
pub(crate) fn next_mean(watched: u8, mean: i64, difference: i64) -> i64 {
    if watched == 0 {
        difference
    } else {
        // Without an overflow, rounded down.
        (mean & difference) + ((mean ^ difference) >> 1)
    }
}

/// Largest integer that is used: f64 has all integers up to 2^53.
const LARGEST: f64 = 9e15;

/// A floating-point number in millionths, if it is exactly the nearest f64 to them.
#[inline]
pub(crate) fn millionths(number: f64) -> Option<i64> {
    scaled(number, 1e6)
}

/// The number of some millionths.
#[inline]
pub(crate) fn of_millionths(millionths: i64) -> f64 {
    unscaled(millionths, 1e6)
}

/// A floating-point number in thousandths, if it is exactly the nearest f64 to them.
#[inline]
pub(crate) fn thousandths(number: f64) -> Option<i64> {
    scaled(number, 1e3)
}

/// The number of some thousandths.
#[inline]
pub(crate) fn of_thousandths(thousandths: i64) -> f64 {
    unscaled(thousandths, 1e3)
}

#[inline]
fn scaled(number: f64, scale: f64) -> Option<i64> {
    if number.to_bits() == 0 {
        // Most shares; a division takes longer.
        return Some(0);
    }
    let scaled = number * scale;
    if scaled.is_nan() || scaled.abs() > LARGEST {
        return None;
    }
    // Rounded to the nearest; `round` is a call of a function.
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let scaled = (scaled + 0.5_f64.copysign(scaled)) as i64;
    // The bits also differ for -0.0, which has no integer.
    (unscaled(scaled, scale).to_bits() == number.to_bits()).then_some(scaled)
}

#[inline]
#[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
fn unscaled(number: i64, scale: f64) -> f64 {
    number as f64 / scale
}

#[cfg(test)]
mod tests {
    use super::{millionths, of_millionths, of_thousandths, thousandths};

    #[test]
    fn decimal_fractions_are_exact() {
        for number in [0.0, 0.5, 1.25, -0.0011, 123_456.789_012, 9e9] {
            assert_eq!(millionths(number).map(of_millionths), Some(number));
        }
        for share in [0.0, 0.001, 0.011, 0.999, 1.0, -0.5] {
            assert_eq!(thousandths(share).map(of_thousandths), Some(share));
        }
    }

    #[test]
    fn other_numbers_have_no_integer() {
        for number in [-0.0, 1.0 / 3.0, f64::NAN, f64::INFINITY, 1e300, 0.000_000_1] {
            assert_eq!(millionths(number), None, "{number}");
        }
        assert_eq!(thousandths(0.000_1), None);
    }
}

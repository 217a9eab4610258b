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
/// The same in ten-thousandths. Shares have four decimal places at most.
pub(crate) const TEN_THOUSANDTHS: Token = 6;
/// A text: its number in the dictionary.
pub(crate) const TEXT: Token = 7;
/// Bytes: their number in the dictionary.
pub(crate) const BYTES: Token = 8;
/// The start of a sequence, which ends with [`END`].
pub(crate) const SEQ: Token = 9;
/// The start of a map, of keys and values in turn, which ends with [`END`].
pub(crate) const MAP: Token = 10;
/// The end of the innermost sequence or map.
pub(crate) const END: Token = 11;
/// The first struct of the dictionary. Its values follow in the order of its fields.
pub(crate) const STRUCT: Token = 16;

/// Whether a token has a cell.
#[inline]
pub(crate) fn has_cell(token: Token) -> bool {
    token <= BYTES
}

/// Readings for which a cell that moved is watched. Then it is quiet, until it moves again.
const WATCHED: u8 = 4;

/// A value.
#[derive(Debug, Default)]
pub(crate) struct Flat {
    /// The structure.
    pub(crate) shape: Arc<Shape>,
    /// The values of the tokens that have one, in their order.
    pub(crate) cells: Vec<u64>,
    /// The last difference of each cell.
    pub(crate) differences: Vec<i64>,
    /// Readings for which each cell is still watched; 0 if it is quiet.
    pub(crate) watched: Vec<u8>,
}

impl Flat {
    /// Adds a cell.
    pub(crate) fn put(&mut self, cell: u64, difference: i64, watched: u8) {
        self.cells.push(cell);
        self.differences.push(difference);
        self.watched.push(watched);
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

/// A floating-point number in ten-thousandths, if it is exactly the nearest f64 to them.
#[inline]
pub(crate) fn ten_thousandths(number: f64) -> Option<i64> {
    scaled(number, 1e4)
}

/// The number of some ten-thousandths.
#[inline]
pub(crate) fn of_ten_thousandths(ten_thousandths: i64) -> f64 {
    unscaled(ten_thousandths, 1e4)
}

#[inline]
fn scaled(number: f64, scale: f64) -> Option<i64> {
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
    use super::{millionths, of_millionths, of_ten_thousandths, ten_thousandths};

    #[test]
    fn decimal_fractions_are_exact() {
        for number in [0.0, 0.5, 1.25, -0.0011, 123_456.789_012, 9e9] {
            assert_eq!(millionths(number).map(of_millionths), Some(number));
        }
        for share in [0.0, 0.0001, 0.0011, 0.9999, 1.0, -0.5] {
            assert_eq!(ten_thousandths(share).map(of_ten_thousandths), Some(share));
        }
    }

    #[test]
    fn other_numbers_have_no_integer() {
        for number in [-0.0, 1.0 / 3.0, f64::NAN, f64::INFINITY, 1e300, 0.000_000_1] {
            assert_eq!(millionths(number), None, "{number}");
        }
        assert_eq!(ten_thousandths(0.000_01), None);
    }
}

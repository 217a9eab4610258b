//! A value as two rows: the tokens of its structure, and a cell for each of its values.
//!
//! The structure of a VM rarely changes between two readings, and most of its values do not
//! change either. So the difference of two readings is short, and is found without knowledge
//! of the types.

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
/// A text: its number in the dictionary.
pub(crate) const TEXT: Token = 6;
/// Bytes: their number in the dictionary.
pub(crate) const BYTES: Token = 7;
/// The start of a sequence, which ends with [`END`].
pub(crate) const SEQ: Token = 8;
/// The start of a map, of keys and values in turn, which ends with [`END`].
pub(crate) const MAP: Token = 9;
/// The end of the innermost sequence or map.
pub(crate) const END: Token = 10;
/// The first struct of the dictionary. Its values follow in the order of its fields.
pub(crate) const STRUCT: Token = 16;

/// Whether a token has a cell.
pub(crate) fn has_cell(token: Token) -> bool {
    token <= BYTES
}

/// A value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Flat {
    /// The structure.
    pub(crate) tokens: Vec<Token>,
    /// The values of the tokens that have one, in their order.
    pub(crate) cells: Vec<u64>,
    /// The code of the last difference of each cell.
    pub(crate) codes: Vec<u8>,
}

impl Flat {
    /// Adds a cell.
    pub(crate) fn put(&mut self, cell: u64, code: u8) {
        self.cells.push(cell);
        self.codes.push(code);
    }

    /// Number of cells of some tokens.
    pub(crate) fn cells_of(tokens: &[Token]) -> usize {
        tokens.iter().filter(|token| has_cell(**token)).count()
    }
}

const MILLION: f64 = 1e6;

/// Largest number of millionths that is used: f64 has all integers up to 2^53.
const MOST_MILLIONTHS: f64 = 9e15;

/// The number in millionths, if it is exactly the nearest f64 to them.
pub(crate) fn millionths(number: f64) -> Option<i64> {
    let scaled = (number * MILLION).round();
    if scaled.is_nan() || scaled.abs() > MOST_MILLIONTHS {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let scaled = scaled as i64;
    // The bits also differ for -0.0, which has no integer.
    (of_millionths(scaled).to_bits() == number.to_bits()).then_some(scaled)
}

/// The number of some millionths.
#[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
pub(crate) fn of_millionths(millionths: i64) -> f64 {
    millionths as f64 / MILLION
}

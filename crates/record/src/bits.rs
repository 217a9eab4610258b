//! Differences of numbers: a code for each, and their bits, packed.
//!
//! What is written of a difference is its deviation from the expected one. The bits of it are
//! mostly noise, which does not compress; their number is its code and compresses well, because
//! the same counter rises by a similar amount each time. A large difference that the frame has
//! already is a reference to it.
//!
//! ```text
//! code: 0        the expected difference
//!       1 … 64   the number of bits of the deviation, with a mark if it is negative
//!       NEXT     the difference behind the one that was repeated last
//!       EARLIER  an earlier one; in bits: the length of the distance to it, the distance
//! ```

use crate::repeats::{DISTANCE_BITS, Place, Repeats, is_large};

/// The code of a negative difference is marked with this bit.
const NEGATIVE: u8 = 0x80;

/// See above.
const NEXT: u8 = 65;

/// See above.
const EARLIER: u8 = 66;

/// Differences that are written.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// The bits of each absolute value without the highest one, which is 1.
    bits: Vec<u8>,
    pending: u64,
    pending_bits: u32,
    repeats: Repeats,
}

impl Differences {
    pub(crate) fn clear(&mut self) {
        self.bits.clear();
        (self.pending, self.pending_bits) = (0, 0);
        self.repeats.clear();
    }

    /// Begins the next value.
    pub(crate) fn begin_value(&mut self) {
        self.repeats.clear();
    }

    /// Adds a difference; returns its code.
    #[inline]
    pub(crate) fn put(&mut self, difference: i64, expected: i64) -> u8 {
        let deviation = difference.wrapping_sub(expected);
        let size = deviation.unsigned_abs();
        let Some(bits) = size.checked_ilog2() else {
            return 0;
        };
        let whole = difference.unsigned_abs();
        if is_large(whole)
            && let Some(code) = self.put_repeated(difference, whole)
        {
            return code;
        }
        self.put_bits(size & !(1 << bits), bits);
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let length = bits as u8 + 1;
        if deviation < 0 {
            length | NEGATIVE
        } else {
            length
        }
    }

    /// Adds a reference to an earlier equal difference, if that is shorter.
    fn put_repeated(&mut self, difference: i64, size: u64) -> Option<u8> {
        Some(match self.repeats.find(difference, size)? {
            Place::Next => NEXT,
            Place::Back(distance) => {
                let bits = distance.ilog2();
                self.put_bits(bits.into(), DISTANCE_BITS);
                self.put_bits(u64::from(distance) & !(1 << bits), bits);
                EARLIER
            }
        })
    }

    /// Adds at most 63 bits.
    fn put_bits(&mut self, value: u64, bits: u32) {
        self.pending |= value << self.pending_bits;
        let free = 64 - self.pending_bits;
        if bits < free {
            self.pending_bits += bits;
            return;
        }
        self.bits.extend_from_slice(&self.pending.to_le_bytes());
        // Some were pending, because at most 63 are added.
        self.pending = value >> free;
        self.pending_bits = bits - free;
    }

    /// The packed bits so far, which ends them.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let bytes = self.pending_bits.div_ceil(8) as usize;
        self.bits
            .extend(self.pending.to_le_bytes().iter().take(bytes));
        (self.pending, self.pending_bits) = (0, 0);
        &self.bits
    }
}

/// What is left of differences.
#[derive(Debug)]
pub(crate) struct Reading<'b> {
    bits: &'b [u8],
    /// Position in the bits.
    at: usize,
    repeats: Repeats,
}

impl<'b> Reading<'b> {
    pub(crate) fn of(bits: &'b [u8]) -> Self {
        Self {
            bits,
            at: 0,
            repeats: Repeats::default(),
        }
    }

    /// Begins the next value.
    pub(crate) fn begin_value(&mut self) {
        self.repeats.clear();
    }

    /// The next difference, which has this code; `None` at the end.
    pub(crate) fn next(&mut self, code: u8, expected: i64) -> Option<i64> {
        match code {
            NEXT => self.repeats.next(),
            EARLIER => {
                let distance = self.distance()?;
                self.repeats.back(distance)
            }
            _ => {
                let bits = u32::from(code & !NEGATIVE);
                let size = match bits {
                    0 => return Some(expected),
                    1..=64 => self.take(bits - 1)? | 1_u64 << (bits - 1),
                    _ => return None,
                };
                let deviation = size.cast_signed();
                let deviation = if code & NEGATIVE == 0 {
                    deviation
                } else {
                    deviation.wrapping_neg()
                };
                let difference = expected.wrapping_add(deviation);
                if is_large(difference.unsigned_abs()) {
                    self.repeats.add(difference);
                }
                Some(difference)
            }
        }
    }

    /// A distance, behind the number of its bits without the highest one.
    fn distance(&mut self) -> Option<u64> {
        let bits = u32::try_from(self.take(DISTANCE_BITS)?).ok()?;
        Some(self.take(bits)? | 1_u64 << bits)
    }

    fn take(&mut self, bits: u32) -> Option<u64> {
        if self.at + bits as usize > self.bits.len() * 8 {
            return None;
        }
        let (byte, shift) = (self.at / 8, self.at % 8);
        let mut wide = [0; 16];
        let rest = self.bits.get(byte..).unwrap_or_default();
        for (to, from) in wide.iter_mut().zip(rest) {
            *to = *from;
        }
        self.at += bits as usize;
        let mask = (1_u64 << bits) - 1;
        #[expect(clippy::cast_possible_truncation, reason = "the lowest 64 bits")]
        Some((u128::from_le_bytes(wide) >> shift) as u64 & mask)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Differences, EARLIER, NEXT, Reading};

    /// Numbers of all lengths.
    fn number() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    /// Differences with the expected ones, once written and read.
    fn read_again(pairs: &[(i64, i64)]) -> Vec<Option<i64>> {
        let mut differences = Differences::default();
        let codes = pairs
            .iter()
            .map(|(one, other)| differences.put(*one, *other));
        let codes: Vec<u8> = codes.collect();
        let bits = differences.finish().to_vec();
        let mut reading = Reading::of(&bits);
        let codes = codes.into_iter().zip(pairs);
        codes
            .map(|(code, (_, expected))| reading.next(code, *expected))
            .collect()
    }

    proptest! {
        #[test]
        fn differences_round_trip(pairs in prop::collection::vec((number(), number()), 0..200)) {
            let expected: Vec<_> = pairs.iter().map(|(difference, _)| Some(*difference)).collect();
            prop_assert_eq!(read_again(&pairs), expected);
        }

        #[test]
        fn repeated_differences_round_trip(
            choices in prop::collection::vec((0..8_usize, any::<i64>()), 0..200),
            common: [i64; 8],
        ) {
            let pair = |(which, expected): &(usize, i64)| (common[*which], *expected);
            let pairs: Vec<_> = choices.iter().map(pair).collect();
            let expected: Vec<_> = pairs.iter().map(|(difference, _)| Some(*difference)).collect();
            prop_assert_eq!(read_again(&pairs), expected);
        }

        #[test]
        fn any_bytes_are_read_without_panic(codes: Vec<u8>, bits: Vec<u8>) {
            let mut reading = Reading::of(&bits);
            let numbers = codes.into_iter().map(|code| reading.next(code, 1));
            prop_assert!(numbers.count() < 1000);
        }
    }

    #[test]
    fn large_difference_is_written_once() {
        let mut differences = Differences::default();
        let numbers = [1 << 40, 1 << 41, 1 << 42, 7, 7, 1 << 41, 1 << 42];
        let codes = numbers.map(|difference| differences.put(difference, 0));
        assert_eq!(codes, [41, 42, 43, 3, 3, EARLIER, NEXT]);
    }

    #[test]
    fn expected_difference_takes_no_bits() {
        let mut differences = Differences::default();
        let codes = [(5, 5), (7, 5), (3, 5)].map(|(one, expected)| differences.put(one, expected));
        assert_eq!(codes, [0, 2, 2 | super::NEGATIVE]);
        // One bit each of the deviations 2 and -2.
        assert_eq!(differences.finish().len(), 1);
    }
}

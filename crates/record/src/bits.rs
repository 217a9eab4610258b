//! Differences of numbers: a code for each, and their bits, packed.
//!
//! The bits of a difference are mostly noise, which does not compress; their number is its code
//! and compresses well, because the same counter rises by a similar amount each time. A large
//! difference that the frame has already is a reference to it.
//!
//! ```text
//! code: 0        no difference
//!       1 … 64   the number of bits, with a mark if it is negative
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

    /// Adds the difference of two numbers; returns its code.
    #[inline]
    pub(crate) fn put(&mut self, from: u64, to: u64) -> u8 {
        let difference = to.wrapping_sub(from).cast_signed();
        let size = difference.unsigned_abs();
        if is_large(size)
            && let Some(code) = self.put_repeated(difference, size)
        {
            return code;
        }
        let Some(bits) = size.checked_ilog2() else {
            return 0;
        };
        self.put_bits(size & !(1 << bits), bits);
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let length = bits as u8 + 1;
        if difference < 0 {
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

    /// The number with the next difference to `from`, which has this code; `None` at the end.
    pub(crate) fn next(&mut self, code: u8, from: u64) -> Option<u64> {
        let difference = match code {
            NEXT => self.repeats.next()?,
            EARLIER => {
                let distance = self.distance()?;
                self.repeats.back(distance)?
            }
            _ => {
                let bits = u32::from(code & !NEGATIVE);
                let size = match bits {
                    0 => 0,
                    1..=64 => self.take(bits - 1)? | 1_u64 << (bits - 1),
                    _ => return None,
                };
                let size_with_sign = size.cast_signed();
                let difference = if code & NEGATIVE == 0 {
                    size_with_sign
                } else {
                    size_with_sign.wrapping_neg()
                };
                if is_large(size) {
                    self.repeats.add(difference);
                }
                difference
            }
        };
        Some(from.wrapping_add_signed(difference))
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
    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    /// The numbers behind the first ones of some pairs, once written and read.
    fn read_again(pairs: &[(u64, u64)]) -> Vec<Option<u64>> {
        let mut differences = Differences::default();
        let codes = pairs.iter().map(|(from, to)| differences.put(*from, *to));
        let codes: Vec<u8> = codes.collect();
        let bits = differences.finish().to_vec();
        let mut reading = Reading::of(&bits);
        let codes = codes.into_iter().zip(pairs);
        codes
            .map(|(code, (from, _))| reading.next(code, *from))
            .collect()
    }

    proptest! {
        #[test]
        fn differences_round_trip(pairs in prop::collection::vec((number(), number()), 0..200)) {
            let expected: Vec<_> = pairs.iter().map(|(_, to)| Some(*to)).collect();
            prop_assert_eq!(read_again(&pairs), expected);
        }

        #[test]
        fn repeated_differences_round_trip(
            choices in prop::collection::vec((0..8_usize, any::<u64>()), 0..200),
            common: [u64; 8],
        ) {
            let pair = |(which, from): &(usize, u64)| (*from, from.wrapping_add(common[*which]));
            let pairs: Vec<_> = choices.iter().map(pair).collect();
            let expected: Vec<_> = pairs.iter().map(|(_, to)| Some(*to)).collect();
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
        let codes = numbers.map(|to| differences.put(0, to));
        assert_eq!(codes, [41, 42, 43, 3, 3, EARLIER, NEXT]);
    }
}

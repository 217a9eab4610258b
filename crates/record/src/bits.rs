//! Deviations from expected differences: a code for each, and their bits, packed.
//!
//! The bits of a deviation are mostly noise, which does not compress; their number is its code
//! and compresses well, because the same counter rises by a similar amount each time.
//!
//! ```text
//! code: 0       the expected difference
//!       1 … 64  the number of bits of the deviation, with a mark if it is negative
//! ```

use std::mem;

/// The code of a negative deviation is marked with this bit.
const NEGATIVE: u8 = 0x80;

/// Deviations that are written.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    /// The bits of each absolute value without the highest one, which is 1.
    bytes: Vec<u8>,
    pending: Pending,
}

/// Bits that do not fill a word yet.
#[derive(Debug, Default)]
struct Pending {
    bits: u64,
    len: u32,
}

impl Bits {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pending = Pending::default();
    }

    /// Adds deviations, and their codes to `codes`.
    pub(crate) fn put(&mut self, deviations: &[i64], codes: &mut Vec<u8>) {
        // Apart, so that it stays in registers.
        let mut pending = mem::take(&mut self.pending);
        let bytes = &mut self.bytes;
        codes.extend(deviations.iter().map(|deviation| {
            let size = deviation.unsigned_abs();
            let Some(bits) = size.checked_ilog2() else {
                return 0;
            };
            pending.put(size & !(1 << bits), bits, bytes);
            #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
            let length = bits as u8 + 1;
            // A branch on the sign would often be mispredicted.
            length | (u8::from(*deviation < 0) * NEGATIVE)
        }));
        self.pending = pending;
    }

    /// Ends the bits.
    pub(crate) fn finish(&mut self) {
        let Pending { bits, len } = mem::take(&mut self.pending);
        let bytes = bits.to_le_bytes().into_iter();
        self.bytes.extend(bytes.take(len.div_ceil(8) as usize));
    }

    /// The packed bits, once they have ended.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Pending {
    /// Adds at most 63 bits. Bits that fill a word go to `bytes`.
    #[inline]
    fn put(&mut self, value: u64, bits: u32, bytes: &mut Vec<u8>) {
        self.bits |= value << self.len;
        let free = 64 - self.len;
        if bits < free {
            self.len += bits;
            return;
        }
        bytes.extend_from_slice(&self.bits.to_le_bytes());
        // Some were pending, because at most 63 are added.
        self.bits = value >> free;
        self.len = bits - free;
    }
}

/// Number of bits of the deviation with a code, without the highest one.
fn bits_of(code: u8) -> u32 {
    u32::from(code & !NEGATIVE).saturating_sub(1)
}

/// Number of all bits of deviations with these codes; `None` if one is not a code.
pub(crate) fn all_bits_of(codes: &[u8]) -> Option<usize> {
    let bits = |code: &u8| (code & !NEGATIVE <= 64).then(|| bits_of(*code) as usize);
    codes.iter().map(bits).sum()
}

/// The deviation with this code whose bits begin at a position, which moves behind them;
/// `None` at the end.
pub(crate) fn take(bytes: &[u8], at: &mut usize, code: u8) -> Option<i64> {
    if code & !NEGATIVE == 0 {
        return Some(0);
    }
    let bits = bits_of(code);
    let end = *at + bits as usize;
    if bits > 63 || end > bytes.len() * 8 {
        return None;
    }
    let (byte, shift) = (*at / 8, *at % 8);
    let mut wide = [0; 16];
    let rest = bytes.get(byte..).unwrap_or_default();
    for (to, from) in wide.iter_mut().zip(rest) {
        *to = *from;
    }
    *at = end;
    let highest = 1_u64 << bits;
    #[expect(clippy::cast_possible_truncation, reason = "the lowest 64 bits")]
    let others = (u128::from_le_bytes(wide) >> shift) as u64 & (highest - 1);
    let deviation = (others | highest).cast_signed();
    Some(if code & NEGATIVE == 0 {
        deviation
    } else {
        deviation.wrapping_neg()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bits, NEGATIVE, all_bits_of, take};

    /// Numbers of all lengths.
    fn number() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    fn written(deviations: &[i64]) -> (Vec<u8>, Vec<u8>) {
        let mut bits = Bits::default();
        let mut codes = Vec::new();
        bits.put(deviations, &mut codes);
        bits.finish();
        (codes, bits.bytes().to_vec())
    }

    proptest! {
        #[test]
        fn deviations_round_trip(deviations in prop::collection::vec(number(), 0..200)) {
            let (codes, bytes) = written(&deviations);
            let mut at = 0;
            for (code, deviation) in codes.iter().zip(&deviations) {
                prop_assert_eq!(take(&bytes, &mut at, *code), Some(*deviation));
            }
            prop_assert_eq!(all_bits_of(&codes), Some(at));
            prop_assert_eq!(at.div_ceil(8), bytes.len());
        }

        #[test]
        fn any_bytes_are_read_without_panic(codes: Vec<u8>, bytes: Vec<u8>) {
            let mut at = 0;
            for code in codes {
                take(&bytes, &mut at, code);
                prop_assert!(at <= bytes.len() * 8);
            }
        }
    }

    #[test]
    fn expected_difference_takes_no_bits() {
        let (codes, bytes) = written(&[0, 2, -2]);
        assert_eq!(codes, [0, 2, 2 | NEGATIVE]);
        // One bit each of the deviations 2 and -2.
        assert_eq!(bytes.len(), 1);
    }

    #[test]
    fn length_of_more_than_64_bits_is_refused() {
        assert_eq!(all_bits_of(&[64, 64 | NEGATIVE]), Some(126));
        assert_eq!(all_bits_of(&[65]), None);
        assert_eq!(take(&[0; 16], &mut 0, 65), None);
    }
}

//! Differences of numbers: their lengths as bytes, and their bits packed.
//!
//! The bits of a difference are mostly noise, which does not compress; their number compresses
//! well, because the same counter rises by a similar amount each time.

use crate::varint::Bytes;

/// The length of a negative difference is marked with this bit.
const NEGATIVE: u8 = 0x80;

/// Differences that are written.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// The number of bits of each absolute value without its highest one, which is 1.
    pub(crate) lengths: Vec<u8>,
    bits: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl Differences {
    pub(crate) fn clear(&mut self) {
        self.lengths.clear();
        self.bits.clear();
        (self.pending, self.pending_bits) = (0, 0);
    }

    /// Adds the difference of two numbers.
    pub(crate) fn put(&mut self, from: u64, to: u64) {
        let difference = to.wrapping_sub(from).cast_signed();
        let size = difference.unsigned_abs();
        // Of 0 and 1: none.
        let bits = size.checked_ilog2().unwrap_or(0);
        let length = match size {
            0 => 0,
            #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
            _ => bits as u8 + 1,
        };
        self.lengths.push(if difference < 0 {
            length | NEGATIVE
        } else {
            length
        });
        self.put_bits(
            size & !(1_u64.wrapping_shl(bits) * u64::from(size > 0)),
            bits,
        );
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'b> {
    lengths: Bytes<'b>,
    bits: &'b [u8],
    /// Position in the bits.
    at: usize,
}

impl<'b> Reading<'b> {
    pub(crate) fn of(lengths: Bytes<'b>, bits: &'b [u8]) -> Self {
        Self {
            lengths,
            bits,
            at: 0,
        }
    }

    /// The number with the next difference to `from`; `None` at the end.
    pub(crate) fn next(&mut self, from: u64) -> Option<u64> {
        let [length] = *self.lengths.take(1)?.as_array()?;
        let bits = u32::from(length & !NEGATIVE);
        let size = match bits {
            0 => 0,
            1..=64 => self.take(bits - 1)? | 1_u64 << (bits - 1),
            _ => return None,
        };
        Some(if length & NEGATIVE == 0 {
            from.wrapping_add(size)
        } else {
            from.wrapping_sub(size)
        })
    }

    /// Whether all lengths were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.0.is_empty()
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

    use super::{Differences, Reading};
    use crate::varint::Bytes;

    /// Numbers of all lengths.
    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #[test]
        fn differences_round_trip(pairs in prop::collection::vec((number(), number()), 0..200)) {
            let mut differences = Differences::default();
            for (from, to) in &pairs {
                differences.put(*from, *to);
            }
            let bits = differences.finish().to_vec();
            let mut reading = Reading::of(Bytes(&differences.lengths), &bits);
            for (from, to) in pairs {
                prop_assert_eq!(reading.next(from), Some(to));
            }
            prop_assert!(reading.is_empty());
            prop_assert_eq!(reading.next(1), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(lengths: Vec<u8>, bits: Vec<u8>) {
            let mut reading = Reading::of(Bytes(&lengths), &bits);
            while reading.next(1).is_some() {}
        }
    }
}

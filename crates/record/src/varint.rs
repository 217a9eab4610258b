//! Numbers of variable length: seven bits in each byte, lowest first.

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest seven bits")]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(number as u8);
}

/// Appends the length of something in memory.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    put(out, len as u64);
}

/// What is left of some bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'b>(pub(crate) &'b [u8]);

impl<'b> Bytes<'b> {
    /// The next number; `None` if the bytes end before, or if it has more than 64 bits.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.split_off_first()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The next number, which counts items of at least one byte each in these bytes.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        self.0.split_off(..len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bytes, put};

    proptest! {
        #[test]
        fn numbers_round_trip(number: u64) {
            let mut out = Vec::new();
            put(&mut out, number);
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.number(), Some(number));
            prop_assert!(bytes.0.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let mut bytes = Bytes(&bytes);
            while bytes.number().is_some() {}
        }
    }

    #[test]
    fn number_of_65_bits_is_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(Bytes(&bytes).number(), None);
        bytes[9] = 1;
        assert_eq!(Bytes(&bytes).number(), Some(u64::MAX));
    }
}

//! Frames of a recording.

use virtlens_record::Decoder;

/// Applies frames, each behind the lengths of its head, of the codes of its long columns and of its
/// bits, in two bytes each. Each snapshot can be printed.
pub fn frames(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    let mut rest = bytes;
    while let Some((lengths, more)) = rest.split_first_chunk() {
        let [
            head_low,
            head_high,
            codes_low,
            codes_high,
            bits_low,
            bits_high,
        ] = *lengths;
        let (head, more) = split(more, u16::from_le_bytes([head_low, head_high]));
        let (codes, more) = split(more, u16::from_le_bytes([codes_low, codes_high]));
        let (bits, more) = split(more, u16::from_le_bytes([bits_low, bits_high]));
        rest = more;
        if decoder.apply_unpacked(head, codes, bits).is_err() {
            return;
        }
        if let Ok(snapshot) = decoder.snapshot() {
            let json = serde_json::to_string(&snapshot);
            assert!(json.is_ok(), "what was read can be printed");
        }
    }
}

fn split(bytes: &[u8], len: u16) -> (&[u8], &[u8]) {
    bytes.split_at(usize::from(len).min(bytes.len()))
}

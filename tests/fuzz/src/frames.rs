//! Frames of a recording.

use virtlens_record::Decoder;

/// Applies frames, each behind its length in two bytes. Each snapshot can be printed.
pub fn frames(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    let mut rest = bytes;
    while let Some((head, more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*head)).min(more.len());
        let (body, more) = more.split_at(len);
        rest = more;
        if decoder.apply_body(body).is_err() {
            return;
        }
        if let Ok(snapshot) = decoder.snapshot() {
            let json = serde_json::to_string(&snapshot);
            assert!(json.is_ok(), "what was read can be printed");
        }
    }
}

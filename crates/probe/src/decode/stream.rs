//! The bytes of a pass, and the records in them.

use virtlens_abi as abi;
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;

/// One record of a stream.
pub(super) struct Record<'a> {
    pub(super) kind: u32,
    pub(super) offset: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the record as a `T`, and the data after it.
    pub(super) fn of<T>(&self) -> Result<(&'a T, &'a [u8]), Error>
    where
        T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable,
    {
        T::ref_from_prefix(self.bytes).map_err(|_| self.broken("truncated record"))
    }

    pub(super) fn broken(&self, what: &'static str) -> Error {
        Error::Record {
            offset: self.offset,
            what,
        }
    }
}

/// The records of a stream, in order, up to the first invalid one.
pub(super) struct Records<'a> {
    stream: &'a [u8],
    offset: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(stream: &'a [u8]) -> Self {
        Self { stream, offset: 0 }
    }

    fn next_record(&mut self) -> Result<Record<'a>, Error> {
        let offset = self.offset;
        let broken = |what| Error::Record { offset, what };
        let rest = self.stream.get(offset..).unwrap_or_default();
        let (head, _) = abi::record::RecordHead::ref_from_prefix(rest)
            .map_err(|_| broken("truncated record header"))?;
        let size = head.size as usize;
        let is_whole = size >= size_of::<abi::record::RecordHead>() && size.is_multiple_of(8);
        let bytes = rest.get(..size).filter(|_| is_whole);
        let bytes = bytes.ok_or_else(|| broken("invalid record size"))?;
        self.offset += size;
        Ok(Record {
            kind: head.kind,
            offset,
            bytes,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.stream.len() {
            return None;
        }
        let record = self.next_record();
        if record.is_err() {
            self.offset = self.stream.len();
        }
        Some(record)
    }
}

/// The stream's buffer: 64-bit words, so that records can be read in place.
#[derive(Debug, Default)]
pub struct Buffer {
    words: Vec<u64>,
    used: usize,
}

impl Buffer {
    /// Drops the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns a free part for at least `bytes` more.
    #[expect(clippy::indexing_slicing, reason = "there is more room than is used")]
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        let needed = (self.used + bytes).div_ceil(8);
        if self.words.len() < needed {
            self.words.resize(needed.max(self.words.len() * 2), 0);
        }
        &mut self.words.as_mut_bytes()[self.used..]
    }

    /// Adds `bytes` of the free part to the contents.
    pub fn fill(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Returns the contents.
    #[expect(
        clippy::indexing_slicing,
        reason = "no more is read than there is room"
    )]
    pub fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.used]
    }
}

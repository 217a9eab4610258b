//! Output of a program in a map (`struct stream`, `bpf/record_abi.h`).

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use virtlens_abi::record::{STREAM_BYTES, Stream as Layout};

use super::mapping::Mapping;

/// Offset of the bytes: the number of used bytes comes first.
const HEAD: usize = offset_of!(Layout, bytes);

/// A mapped map `stream`.
#[derive(Debug)]
pub(crate) struct Stream(Mapping);

impl Stream {
    /// Maps the map.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        Mapping::of(map, HEAD + STREAM_BYTES, libc::PROT_READ, 0).map(Self)
    }

    /// Returns the output of the last run. The program must not run meanwhile: only the
    /// owner of this value runs it.
    pub(crate) fn output(&self) -> &[u8] {
        // SAFETY: the word is at the start of a page, which stays mapped as long as
        // `self` lives.
        let used = unsafe { self.0.at(0).cast::<AtomicU64>().as_ref() };
        let used = usize::try_from(used.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let bytes = self.0.at(HEAD).cast::<u8>().as_ptr();
        // SAFETY: this many bytes are mapped after the head, and nothing writes to them
        // until the program runs again.
        unsafe { std::slice::from_raw_parts(bytes, used.min(STREAM_BYTES)) }
    }
}

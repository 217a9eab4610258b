//! What a program tells in a map (`struct stream`, `bpf/abi.h`).

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use virtlens_abi::{STREAM_BYTES, Stream as Layout};

use super::mapping::Mapping;

/// What stands before the bytes: first how many they are.
const HEAD: usize = offset_of!(Layout, bytes);

/// Such a map.
#[derive(Debug)]
pub(crate) struct Stream(Mapping);

impl Stream {
    /// Maps it.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        Mapping::of(map, HEAD + STREAM_BYTES, libc::PROT_READ, 0).map(Self)
    }

    /// What the last run told. The program must not run meanwhile: it does only where
    /// who holds this has it run.
    pub(crate) fn told(&self) -> &[u8] {
        // SAFETY: it stands at the beginning of a page, which stays mapped as long as
        // `self` is.
        let used = unsafe { self.0.at(0).cast::<AtomicU64>().as_ref() };
        let used = usize::try_from(used.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let bytes = self.0.at(HEAD).cast::<u8>().as_ptr();
        // SAFETY: as many bytes are mapped behind the head, and nobody writes to them
        // until the program runs again.
        unsafe { std::slice::from_raw_parts(bytes, used.min(STREAM_BYTES)) }
    }
}

//! Memory mappings of maps.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

/// Memory that is shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    begin: NonNull<libc::c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and has a single owner.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a map, starting at `offset`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn of(
        fd: BorrowedFd<'_>,
        len: usize,
        protection: i32,
        offset: usize,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                offset,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { begin, len })
    }

    /// Returns the address at `offset` bytes.
    pub(crate) fn at(&self, offset: usize) -> NonNull<libc::c_void> {
        debug_assert!(offset < self.len);
        // SAFETY: within the mapping.
        unsafe { self.begin.byte_add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, with this length; no borrow of it remains.
        unsafe { libc::munmap(self.begin.as_ptr(), self.len) };
    }
}

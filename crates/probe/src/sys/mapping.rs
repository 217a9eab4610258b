//! Maps whose values can be read in place.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

/// Memory that is shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    begin: NonNull<libc::c_void>,
    len: usize,
}

// SAFETY: it is of the process and of no thread, and whoever holds it is alone with it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a map, from `offset` on.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn of(
        fd: BorrowedFd<'_>,
        len: usize,
        protection: i32,
        offset: usize,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses where; nothing that is mapped is replaced.
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

    /// The address of what stands `offset` bytes behind the beginning.
    pub(crate) fn at(&self, offset: usize) -> NonNull<libc::c_void> {
        debug_assert!(offset < self.len);
        // SAFETY: within the mapping.
        unsafe { self.begin.byte_add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, with this length; nothing of it is borrowed any more.
        unsafe { libc::munmap(self.begin.as_ptr(), self.len) };
    }
}

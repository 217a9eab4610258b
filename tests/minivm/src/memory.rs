//! Mappings for guest memory, and the calls of a balloon on them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU16;

use anyhow::{Context, bail, ensure};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// Size of a small page of x86-64, bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Memory that stays mapped until the process ends: KVM keeps using it, so dropping this
/// unmaps nothing.
pub(crate) struct Mapping {
    start: NonNull<libc::c_void>,
    bytes: u64,
    /// The memfd behind it; `None` for anonymous memory.
    file: Option<File>,
}

/// An madvise value that VMMs use on guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice(libc::c_int);

impl Advice {
    /// Parses the name of an madvise value.
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        Ok(Self(match name {
            "dontneed" => libc::MADV_DONTNEED,
            "willneed" => libc::MADV_WILLNEED,
            "free" => libc::MADV_FREE,
            "remove" => libc::MADV_REMOVE,
            _ => bail!("unknown advice {name:?}: use dontneed, willneed, free or remove"),
        }))
    }
}

impl Mapping {
    /// Maps private anonymous memory, or shared memory of a memfd. No page is resident
    /// before it is touched.
    pub(crate) fn new(bytes: u64, memfd: bool) -> anyhow::Result<Self> {
        let file = memfd.then(|| make_memfd(bytes)).transpose()?;
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let len = usize::try_from(bytes)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                ptr::null_mut(),
                len,
                access,
                flags | libc::MAP_NORESERVE,
                fd,
                0,
            )
        };
        ensure!(
            start != libc::MAP_FAILED,
            "cannot map {bytes} bytes: {}",
            os_error()
        );
        let start = NonNull::new(start).expect("mmap never maps page 0 unasked");
        Ok(Self { start, bytes, file })
    }

    /// Start address in this process.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Size, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies bytes to an offset.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> anyhow::Result<()> {
        let to = self.at(offset, data.len() as u64)?;
        // SAFETY: `at` checked the range; the guest may race, on bytes only.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to.cast::<u8>(), data.len()) };
        Ok(())
    }

    /// A number that the kernel or a guest also changes.
    pub(crate) fn word(&self, offset: u64) -> anyhow::Result<&'static AtomicU16> {
        ensure!(
            offset.is_multiple_of(2),
            "offset {offset} is not a multiple of 2"
        );
        let word = self.at(offset, 2)?;
        // SAFETY: `at` checked the range, which is aligned and never unmapped; all bytes
        // are valid numbers.
        Ok(unsafe { AtomicU16::from_ptr(word.cast()) })
    }

    /// Writes to each page of a range, which makes it resident.
    pub(crate) fn touch(&self, offset: u64, len: u64) -> anyhow::Result<()> {
        self.at(offset, len)?;
        (offset..offset + len)
            .step_by(usize::try_from(PAGE_BYTES)?)
            .try_for_each(|page| self.write(page, &[1]))
    }

    /// Calls madvise(2) `count` times, on consecutive ranges of `len`.
    pub(crate) fn advise(
        &self,
        advice: Advice,
        offset: u64,
        len: u64,
        count: u64,
    ) -> anyhow::Result<()> {
        for offset in self.ranges(offset, len, count)? {
            let start = self.at(offset, len)?;
            // SAFETY: the range is inside this mapping, and nothing in this process holds
            // a reference into it.
            let failed = unsafe { libc::madvise(start, usize::try_from(len)?, advice.0) };
            ensure!(failed == 0, "madvise at {offset}: {}", os_error());
        }
        Ok(())
    }

    /// Punches `count` holes with fallocate(2), on consecutive ranges of `len`.
    pub(crate) fn punch(&self, offset: u64, len: u64, count: u64) -> anyhow::Result<()> {
        let file = self
            .file
            .as_ref()
            .context("anonymous memory has no file: start with --memfd")?;
        for offset in self.ranges(offset, len, count)? {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, mode, offset, len).with_context(|| format!("fallocate at {offset}"))?;
        }
        Ok(())
    }

    fn ranges(
        &self,
        offset: u64,
        len: u64,
        count: u64,
    ) -> anyhow::Result<impl Iterator<Item = u64> + use<>> {
        let whole = len.checked_mul(count).context("too many bytes")?;
        self.at(offset, whole)?;
        Ok((0..count).map(move |i| offset + i * len))
    }

    fn at(&self, offset: u64, len: u64) -> anyhow::Result<*mut libc::c_void> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.bytes);
        ensure!(
            inside,
            "{offset}+{len} is outside guest memory of {} bytes: raise --mem",
            self.bytes
        );
        // SAFETY: the offset is inside the mapping.
        Ok(unsafe { self.start.as_ptr().byte_add(usize::try_from(offset)?) })
    }
}

fn make_memfd(bytes: u64) -> anyhow::Result<File> {
    let fd = memfd_create(c"ram", MemfdFlags::CLOEXEC).context("cannot create a memfd")?;
    let file = File::from(fd);
    file.set_len(bytes)?;
    Ok(file)
}

fn os_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

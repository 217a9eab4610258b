//! Ring buffers that programs write to (`BPF_MAP_TYPE_RINGBUF`, since v5.8).

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::param::page_size;

use super::map::Map;
use super::mapping::Mapping;

/// Size of the header before each record (`kernel/bpf/ringbuf.c`): the record's length
/// with the flags below.
const HEADER: u64 = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// The consumer of a ring buffer. The kernel maps a page with the consumer position, one
/// with the producer position, and then the data twice, so that a record is always
/// contiguous.
#[derive(Debug)]
pub(crate) struct Ring {
    reader: Mapping,
    writer: Mapping,
    page: usize,
    size: u64,
}

impl Ring {
    /// Maps the buffer of a ring buffer map.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn of(map: &Map) -> io::Result<Self> {
        let page = page_size();
        let size = map.info().max_entries;
        let fd = map.fd();
        let both = page + 2 * size as usize;
        Ok(Self {
            reader: Mapping::of(fd, page, libc::PROT_READ | libc::PROT_WRITE, 0)?,
            writer: Mapping::of(fd, both, libc::PROT_READ, page)?,
            page,
            size: size.into(),
        })
    }

    /// Passes up to `most` new records to `each`, whatever their length is.
    pub(crate) fn drain(&mut self, most: usize, mut each: impl FnMut(&[u8])) {
        // SAFETY: both words are at the start of their pages, which stay mapped as long
        // as `self` lives.
        let (read, written) = unsafe {
            let read = self.reader.at(0).cast::<AtomicU64>();
            (
                read.as_ref(),
                self.writer.at(0).cast::<AtomicU64>().as_ref(),
            )
        };
        let end = written.load(Ordering::Acquire);
        let mut place = read.load(Ordering::Relaxed);
        for _ in 0..most {
            if place >= end {
                break;
            }
            let at = self.page + usize::try_from(place & (self.size - 1)).unwrap_or(0);
            // SAFETY: `at` is within the first copy of the data and aligned to 8, as all
            // records are; the second copy follows.
            let header = unsafe { self.writer.at(at).cast::<AtomicU32>().as_ref() };
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let len = u64::from(header & !(BUSY | DISCARDED));
            if header & DISCARDED == 0 && len <= self.size {
                let from = self.writer.at(at + 8).cast::<u8>().as_ptr();
                let len = usize::try_from(len).unwrap_or(0);
                // SAFETY: the record is within the two copies, and the kernel does not
                // change it until the consumer position is beyond it.
                each(unsafe { std::slice::from_raw_parts(from, len) });
            }
            place += (HEADER + len).next_multiple_of(8);
            read.store(place, Ordering::Release);
        }
    }
}

//! Rust mirror of `bpf/memory_abi.h`: what a pass tells of memory, where RAM lies, and
//! what was done with it.

use crate::{Owner, RecordHead};

/// The most memslots of a VM that are told.
pub const MEMSLOTS_MAX: usize = 128;
/// The most pieces of host memory that are followed as a guest's RAM.
pub const RAM_RANGES_MAX: usize = 16;
/// The most VMs whose RAM is followed.
pub const RAM_MAX: u32 = 4096;
/// The most of them whose VMMs' tgids are alike modulo [`RAM_MAX`].
pub const RAM_WAYS: usize = 4;

mirror! {
    /// `struct memory_record`.
    memory_record => MemoryRecord {
        head: RecordHead,
        owner: Owner,
        resident_bytes: u64,
        peak_bytes: u64,
        hugetlb_bytes: u64,
        refault_bytes: u64,
    }
    /// `struct memslot`.
    memslot => Memslot {
        start: u64,
        bytes: u64,
        flags: u32,
        pad: u32,
    }
    /// `struct memslots_record`: a VM's memslots; [`Memslot`]s follow.
    memslots_record => MemslotsRecord {
        head: RecordHead,
        owner: Owner,
    }
    /// `struct ram_range`.
    ram_range => RamRange {
        start: u64,
        end: u64,
        inode: u64,
        offset: u64,
        device: u32,
        pad: u32,
    }
    /// `struct ram_bucket`: value of array `ram_buckets`.
    ram_bucket => RamBucket {
        tgid: [u32; RAM_WAYS],
        ram: [u32; RAM_WAYS],
    }
    /// `struct ram`: value of array `ram`.
    ram => Ram {
        start_ns: u64,
        other_min_bytes: u64,
        report_min_bytes: u64,
        discards: u32,
        backing: u32,
        ranges: u32,
        pad: u32,
        range: [RamRange; RAM_RANGES_MAX],
    }
    /// `struct discards`: value of array `discards`.
    discards => Discards {
        events: [u64; DISCARDS as usize],
        bytes: [u64; DISCARDS as usize],
        ns: [u64; DISCARDS as usize],
        refault_bytes: u64,
        released_bytes: u64,
        other_bytes: u64,
        resident_bytes: u64,
        taken_bytes: u64,
        call_began_ns: u64,
        call_resident_bytes: u64,
        page_began_ns: u64,
        page_sleeps: u64,
        call_tid: u32,
        page_tid: u32,
    }
}

enumerators! {
    /// A file on a disk, or not known: all resident memory may be RAM.
    RAM_OF_ANY = 0,
    /// No file: anonymous memory may be RAM, with the VMM's own.
    RAM_ANONYMOUS = 1,
    /// A memfd, tmpfs or hugetlbfs: shared memory and huge pages are RAM.
    RAM_SHARED = 2,
    /// The balloon took it.
    DISCARD_INFLATE = 0,
    /// The balloon gave it back.
    DISCARD_DEFLATE = 1,
    /// The guest told that it is free.
    DISCARD_REPORT = 2,
    /// Something else.
    DISCARD_OTHER = 3,
    /// How many kinds there are.
    DISCARDS = 4,
}

//! Rust mirror of `bpf/memory_abi.h`: memory records of a pass, the location of RAM, and
//! the counters of discards.

use crate::Owner;
use crate::record::RecordHead;

/// Maximum number of memslots emitted per VM.
pub const MEMSLOTS_MAX: usize = 128;
/// Maximum number of RAM ranges tracked per VM.
pub const RAM_RANGES_MAX: usize = 16;
/// Maximum number of VMs whose RAM is tracked.
pub const RAM_MAX: u32 = 4096;
/// Maximum number of VMMs with equal tgid modulo [`RAM_MAX`].
pub const RAM_WAYS: usize = 4;

mirror! {
    /// `struct memory_record`.
    memory_record => MemoryRecord {
        head: RecordHead,
        owner: Owner,
        resident_bytes: u64,
        swap_bytes: u64,
        peak_bytes: u64,
        hugetlb_bytes: u64,
        refault_bytes: u64,
    }
    /// `struct memslot`.
    memslot => Memslot {
        start: u64,
        bytes: u64,
        guest_memfd: u64,
        guest_memfd_bytes: u64,
        flags: u32,
        pad: u32,
    }
    /// `struct memslots_record`: a VM's memslots; [`Memslot`]s follow.
    memslots_record => MemslotsRecord {
        head: RecordHead,
        owner: Owner,
        generation: u64,
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
    /// A file on disk, or unknown: all resident memory can be RAM.
    RAM_OF_ANY = 0,
    /// No file: anonymous memory can be RAM; it includes the VMM's own.
    RAM_ANONYMOUS = 1,
    /// A memfd, tmpfs or hugetlbfs: shared memory and huge pages are RAM.
    RAM_SHARED = 2,
    /// Balloon inflation.
    DISCARD_INFLATE = 0,
    /// Balloon deflation.
    DISCARD_DEFLATE = 1,
    /// Free page reporting.
    DISCARD_REPORT = 2,
    /// Memory unplug, migration or reset.
    DISCARD_OTHER = 3,
    /// Number of kinds.
    DISCARDS = 4,
}

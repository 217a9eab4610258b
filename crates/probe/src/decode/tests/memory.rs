//! The memory of a VM's process, and its memslots.

use virtlens_abi as abi;
use virtlens_model::facts::MemoryFact;
use virtlens_model::vocab::VmKey;
use zerocopy::{FromZeros, IntoBytes};

use super::{Stream, head};
use crate::decode::Decoder;

const VM: VmKey = VmKey {
    start_ns: 500,
    tgid: 7,
};

const OWNER: abi::Owner = abi::Owner {
    id: 500,
    tgid: 7,
    pad: 0,
};

const LOG_DIRTY_PAGES: u32 = 1;
const READONLY: u32 = 2;
const GUEST_MEMFD: u32 = 4;

fn slot(start: u64, bytes: u64, flags: u32) -> abi::memory::Memslot {
    let mut slot = abi::memory::Memslot::new_zeroed();
    (slot.start, slot.bytes, slot.flags) = (start, bytes, flags);
    slot
}

/// A pass with these memslots of the VM, unless it emits none. Returns its memory, and the
/// generation of its RAM.
fn pass(
    decoder: &mut Decoder,
    memslots: Option<(u64, &[abi::memory::Memslot])>,
) -> (MemoryFact, u64) {
    let mut stream = Stream::default();
    let mut memory = abi::memory::MemoryRecord::new_zeroed();
    memory.head = head(abi::record::RECORD_MEMORY, size_of_val(&memory));
    memory.owner = OWNER;
    stream.push(memory.as_bytes());
    if let Some((generation, slots)) = memslots {
        let mut record = abi::memory::MemslotsRecord::new_zeroed();
        let size = size_of_val(&record) + size_of_val(slots);
        record.head = head(abi::record::RECORD_MEMSLOTS, size);
        (record.owner, record.generation) = (OWNER, generation);
        stream.push(record.as_bytes()).push(slots.as_bytes());
    }
    let (facts, _) = decoder.pass(stream.0.bytes(), 0).expect("it is whole");
    let generation = decoder.ram_of(VM).map_or(0, |slots| slots.generation);
    (facts.memory[&VM], generation)
}

#[test]
fn memslots_are_kept_until_they_change() {
    let mut decoder = Decoder::default();
    let (unknown, _) = pass(&mut decoder, None);
    assert_eq!((unknown.guest_bytes, unknown.dirty_logging), (None, None));
    let firmware = slot(0x9000, 0x1000, READONLY);
    let quiet = [slot(0x1000, 0x4000, 0), firmware];
    let logged = [slot(0x1000, 0x4000, LOG_DIRTY_PAGES), firmware];
    for (memslots, is_logged, expected) in [
        (Some((4, &quiet[..])), false, 1),
        (None, false, 1),
        (Some((6, &logged[..])), true, 2),
        (None, true, 2),
        (Some((8, &quiet[..])), false, 3),
    ] {
        let (memory, generation) = pass(&mut decoder, memslots);
        assert_eq!(memory.guest_bytes, Some(0x4000));
        assert_eq!(memory.dirty_logging, Some(is_logged));
        assert_eq!(memory.guest_memfd_bytes, None);
        assert_eq!(generation, expected);
    }
}

/// The programs emit it in each pass: an old value is not repeated.
#[test]
fn guest_memfd_is_of_this_pass_and_changes_no_ram() {
    let mut decoder = Decoder::default();
    let private = |bytes| {
        let mut private = slot(0x1000, 0x4000, GUEST_MEMFD);
        (private.guest_memfd, private.guest_memfd_bytes) = (0xffff, bytes);
        [private, slot(0x9000, 0x1000, 0)]
    };
    for bytes in [0x1000, 0x3000] {
        let (memory, generation) = pass(&mut decoder, Some((4, &private(bytes))));
        assert_eq!(memory.guest_memfd_bytes, Some(bytes));
        assert_eq!((memory.guest_bytes, generation), (Some(0x5000), 1));
    }
    let (memory, generation) = pass(&mut decoder, None);
    assert_eq!(memory.guest_memfd_bytes, None);
    assert_eq!((memory.guest_bytes, generation), (Some(0x5000), 1));
    // Another VM of the same process: KVM counts from the start again.
    let (_, generation) = pass(&mut decoder, Some((4, &[slot(0x7000, 0x4000, 0)])));
    assert_eq!(generation, 2);
}

//! Facts about a guest's memory that are in KVM's memslots.

use virtlens::collect::Collector;
use virtlens_model::snapshot::Memory;
use virtlens_model::vocab::DirtyLogging;
use virtlens_tests::{Minivm, eventually, need, reader};

const MIB: u64 = 1 << 20;

/// The log's state in one reading; waits for the VM's memslots.
fn logging_of(collector: &mut Collector, guest: &Minivm) -> DirtyLogging {
    eventually("the VM's memslots", || {
        let snapshot = collector.collect();
        reader::find(&snapshot, guest.pid())?.memory.dirty_logging
    })
}

/// The memslots are emitted again only when KVM has changed them: switching the log is such
/// a change.
#[test]
fn dirty_logging_of_ram_is_seen_by_next_reading() {
    if !reader::ready("dirty_logging_of_ram_is_seen_by_next_reading") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1", "--start", "spin", "--mem", "64M"]);
    let mut collector = reader::collector();
    let off = DirtyLogging::default();
    assert_eq!(logging_of(&mut collector, &guest), off);
    for _ in 0..2 {
        // Less than half of its memory, like a graphics card.
        guest.command("log firmware on");
        assert_eq!(logging_of(&mut collector, &guest), off);
        guest.command("log ram on");
        let first = logging_of(&mut collector, &guest);
        assert_eq!((first.enabled, first.seen_ns), (true, Some(0)));
        let second = logging_of(&mut collector, &guest);
        assert!(second.enabled && second.seen_ns > Some(0), "{second:?}");
        guest.command("log firmware off");
        let third = logging_of(&mut collector, &guest);
        assert!(third.enabled && third.seen_ns > second.seen_ns, "{third:?}");
        guest.command("log ram off");
        assert_eq!(logging_of(&mut collector, &guest), off);
    }
}

/// Memory of the VM once its memslots are known.
fn memory_of(collector: &mut Collector, guest: &Minivm) -> Memory {
    eventually("the VM's memslots", || {
        let snapshot = collector.collect();
        let memory = &reader::find(&snapshot, guest.pid())?.memory;
        memory.guest_bytes.map(|_| memory.clone())
    })
}

/// The file grows and shrinks without a change of memslots.
#[test]
fn guest_memfd_pages_are_counted_exactly() {
    let test = "guest_memfd_pages_are_counted_exactly";
    if !reader::ready(test) || !need::all(test, [need::guest_memfd()]) {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1", "--mem", "32M", "--guest-memfd", "64M"]);
    let mut collector = reader::collector();
    let empty = memory_of(&mut collector, &guest);
    assert_eq!(empty.guest_bytes.map(|bytes| bytes / MIB), Some(96));
    let mut bytes_after = |command: &str| {
        guest.command(command);
        memory_of(&mut collector, &guest)
    };
    let counted = |memory: &Memory| memory.guest_memfd_bytes;
    assert_eq!(counted(&empty), Some(0));
    let full = bytes_after("guest-memfd allocate 0 48M");
    assert_eq!(counted(&full), Some(48 * MIB));
    let resident = |memory: &Memory| memory.resident_bytes.expect("the kernel counts it");
    let grown = resident(&full).saturating_sub(resident(&empty));
    assert!(grown < 8 * MIB, "{grown} bytes of it are resident");
    for (command, expected) in [
        ("guest-memfd allocate 48M 4K", 48 * MIB + 4096),
        ("guest-memfd punch 0 16M", 32 * MIB + 4096),
        ("touch 0 8M", 32 * MIB + 4096),
        ("guest-memfd punch 0 64M", 0),
    ] {
        assert_eq!(counted(&bytes_after(command)), Some(expected), "{command}");
    }
}

/// Other VMs are not read for it.
#[test]
fn vm_without_guest_memfd_has_no_value() {
    if !reader::ready("vm_without_guest_memfd_has_no_value") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--mem", "32M"]);
    let memory = memory_of(&mut reader::collector(), &guest);
    assert_eq!(memory.guest_memfd_bytes, None);
}

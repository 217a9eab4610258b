//! Events of one traced VM from the BPF programs.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_abi::trace::TraceEvent;
use virtlens_export::timeline::{Clocks, Title, Writer};
use virtlens_model::timeline::{Actor, Piece, Summary, Timeline};
use virtlens_model::vocab::{CgroupId, Comm, Role};
use virtlens_probe::trace::event;
use zerocopy::FromBytes;

/// Begin of the trace, ns.
const BEGAN_NS: u64 = 1_000_000;

/// `data` is events in the format of the ring buffer.
pub fn trace_events(data: &[u8]) {
    let mut pieces = Vec::new();
    let mut timeline = Timeline::new(BEGAN_NS, vec![actor(1), actor(2)], &mut pieces);
    let mut last_ns = BEGAN_NS;
    for bytes in data.chunks_exact(size_of::<TraceEvent>()) {
        let raw = TraceEvent::read_from_bytes(bytes).expect("as long as an event");
        if let Some(event) = event(raw) {
            last_ns = last_ns.max(event.time_ns);
            timeline.feed(&event, &mut pieces);
        }
    }
    let summary = timeline.end(last_ns, 0, |tid| tid == 1, &mut pieces);
    check(&summary);
    write(&pieces);
}

/// A thread of the VM; the first runs a vCPU.
fn actor(tid: u32) -> Actor {
    Actor {
        tid,
        process: 1,
        name: Comm::new("CPU 0/KVM"),
        role: Some(if tid == 1 { Role::Vcpu } else { Role::Emulator }),
        vcpu: (tid == 1).then_some(0),
        device: None,
        groups: Arc::new([CgroupId(1), CgroupId(2)]),
    }
}

/// The times of a thread's states add up to the time that it was watched.
fn check(summary: &Summary) {
    for one in &summary.threads {
        assert!(one.split.wall_ns() <= summary.took_ns, "{one:?}");
        if let Some(guest) = one.split.guest {
            let shares = [guest.guest_ns, guest.polled_ns, guest.unknown_ns];
            let sum = shares.iter().try_fold(0u64, |sum, ns| sum.checked_add(*ns));
            assert!(
                sum.is_some_and(|sum| sum <= one.split.running_ns),
                "{one:?}"
            );
        }
        let _ = one.split.host_ns();
    }
    assert!(
        summary
            .waits
            .is_sorted_by(|a, b| a.took_ns() >= b.took_ns())
    );
}

/// Writes the pieces as a file.
fn write(pieces: &[Piece]) {
    let title = Title {
        vm: "a".to_owned(),
        processes: FxHashMap::default(),
        quotas: FxHashMap::default(),
        began: Clocks {
            monotonic_ns: BEGAN_NS,
            boottime_ns: BEGAN_NS + 5,
            realtime_ns: 1 << 60,
        },
    };
    let mut out = Vec::new();
    let mut writer = Writer::new(title, &mut out);
    for piece in pieces {
        writer.write(piece, &mut out);
    }
    assert!(!out.is_empty());
}

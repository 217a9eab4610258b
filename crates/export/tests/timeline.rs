//! Timeline files with a piece of each kind, decoded as their viewers decode them.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use virtlens_export::timeline::{Clocks, Title, Writer};
use virtlens_model::timeline::{Actor, Counter, Doing, Peer, Piece, Slice, Track};
use virtlens_model::vocab::{CgroupId, Comm, Role};
use virtlens_tests::need;
use virtlens_tests::perfetto::{self, Trace};

const POD: CgroupId = CgroupId(7);

fn title() -> Title {
    Title {
        vm: "shop/web-0".to_owned(),
        processes: FxHashMap::from_iter([(10, "qemu".to_owned())]),
        quotas: FxHashMap::from_iter([(POD, "pod /kubepods/web".to_owned())]),
        began: Clocks {
            monotonic_ns: 1_000,
            boottime_ns: 5_000,
            realtime_ns: 9_000_000,
        },
    }
}

fn slice(track: Track, from_ns: u64, to_ns: u64, what: Doing) -> Piece {
    let waited = what == Doing::Runnable;
    let peer = waited.then_some(Peer {
        tid: 77,
        name: Comm::new("rival"),
    });
    Piece::Slice(Slice {
        track,
        from_ns,
        to_ns,
        what,
        peer,
    })
}

/// In order of their end times, as in a timeline.
fn pieces() -> Vec<Piece> {
    let vcpu = Actor {
        tid: 11,
        process: 10,
        name: Comm::new("CPU 0/KVM"),
        role: Some(Role::Vcpu),
        vcpu: Some(0),
        device: None,
        groups: Arc::new([POD]),
    };
    vec![
        Piece::Actor(vcpu),
        slice(Track::Thread(11), 1_000, 2_000, Doing::Runnable),
        slice(Track::Guest(11), 2_500, 3_000, Doing::Polling),
        slice(Track::Guest(11), 2_100, 4_000, Doing::Exit(None)),
        slice(Track::Thread(11), 2_000, 4_500, Doing::Running(3)),
        slice(Track::Pcpu(3), 2_000, 4_500, Doing::Thread(11)),
        slice(Track::Quota(POD), 4_500, 5_000, Doing::Throttled),
        Piece::Count {
            time_ns: 5_000,
            counter: Counter::QuotaUsed(POD),
            value: 1.25,
        },
        Piece::Note {
            time_ns: 5_500,
            text: "inflate".to_owned(),
        },
    ]
}

fn written() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(title(), &mut bytes);
    for piece in pieces() {
        writer.write(&piece, &mut bytes);
    }
    bytes
}

#[test]
fn perfetto_decodes_each_piece_on_its_track() {
    if !need::all(
        "perfetto_decodes_each_piece_on_its_track",
        [perfetto::there()],
    ) {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let file = folder.path().join("t.pftrace");
    std::fs::write(&file, written()).expect("there is room for it");
    let trace = Trace::decode(&file);
    let of = |name: &str| -> Vec<(&str, u64, u64, usize)> {
        let slices = trace.on(|track| track.name == name).into_iter();
        slices
            .map(|one| (&*one.name, one.from_ns, one.to_ns, one.depth))
            .collect()
    };
    // On the clock of the file.
    let thread = [
        ("runnable", 5_000, 6_000, 0),
        ("running p3", 6_000, 8_500, 0),
    ];
    assert_eq!(of("CPU 0/KVM"), thread);
    let guest = [("exit", 6_100, 8_000, 0), ("halt polling", 6_500, 7_000, 1)];
    assert_eq!(of("CPU 0/KVM guest"), guest);
    assert_eq!(of("p3"), [("CPU 0/KVM", 6_000, 8_500, 0)]);
    let quota = "quota pod /kubepods/web";
    assert_eq!(of(quota), [("throttled", 8_500, 9_000, 0)]);
    let name = |track: u64| &*trace.tracks[&track].name;
    let counts = trace.counts.iter();
    let counts: Vec<_> = counts
        .map(|(track, at, value)| (name(*track), *at, *value))
        .collect();
    assert_eq!(counts, [("quota pod /kubepods/web used", 9_000, 1.25)]);
    let notes = trace.instants.iter();
    let notes: Vec<_> = notes
        .map(|(track, text, at)| (name(*track), &**text, *at))
        .collect();
    assert_eq!(notes, [("memory events", "inflate", 9_500)]);
    let process = trace
        .tracks
        .values()
        .find(|track| track.pid == 10 && track.tid == 0);
    assert_eq!(process.map(|track| &*track.name), Some("shop/web-0: qemu"));
    assert_eq!(trace.clocks, 1);
}

//! Sequences of thread events, and the resulting timelines.

mod co_stop;
mod extremes;

use std::sync::Arc;

use proptest::prelude::*;

use super::{Timeline, *};
use crate::timeline::event::{Event, Lost, Off, Peer, What};
use crate::timeline::exits::ExitReason;
use crate::timeline::piece::{Actor, Doing, Piece, Track};
use crate::timeline::summary::Summary;
use crate::vocab::{CgroupId, Comm, VhostDevice};

const POD: CgroupId = CgroupId(7);
const HLT: ExitReason = ExitReason {
    is_svm: false,
    code: 12,
};

fn actor(tid: u32) -> Actor {
    Actor {
        tid,
        process: 1,
        name: Comm::new("qemu"),
        role: None,
        vcpu: None,
        device: None,
        groups: Arc::new([POD]),
    }
}

fn event(time_ns: u64, tid: u32, what: What) -> Event {
    Event {
        time_ns,
        tid,
        pcpu: 0,
        lost: Lost::default(),
        what,
    }
}

fn on() -> What {
    What::On {
        after: Peer {
            tid: 99,
            name: Comm::new("rival"),
        },
    }
}

fn off(into: Off) -> What {
    What::Off {
        into,
        stands: None,
        before: Peer::default(),
    }
}

const WOKEN: What = What::Woken { stands: None };

fn exit(counted: u32, poll_ns: u32) -> What {
    What::Exit {
        reason: Some(HLT),
        counted,
        poll_ns,
    }
}

/// Traces the events of threads 1 and 2 from 0 to `end_ns`.
fn trace(events: &[Event], end_ns: u64) -> (Vec<Piece>, Summary) {
    let mut out = Vec::new();
    let mut timeline = Timeline::new(0, vec![actor(1), actor(2)], &mut out);
    for event in events {
        timeline.feed(event, &mut out);
    }
    let summary = timeline.end(end_ns, 0, |_| false, &mut out);
    (out, summary)
}

fn slices(pieces: &[Piece], track: Track) -> Vec<(u64, u64, Doing)> {
    let slice = |piece: &Piece| match piece {
        Piece::Slice(slice) if slice.track == track => {
            Some((slice.from_ns, slice.to_ns, slice.what))
        }
        _ => None,
    };
    pieces.iter().filter_map(slice).collect()
}

#[test]
fn a_thread_sleeps_waits_and_runs() {
    let (pieces, summary) = trace(
        &[
            event(10, 1, WOKEN),
            event(15, 1, on()),
            event(35, 1, off(Off::Runnable)),
            event(50, 1, on()),
            event(60, 1, off(Off::Uninterruptible)),
        ],
        100,
    );
    let expected = [
        (0, 10, Doing::Sleeping),
        (10, 15, Doing::Runnable),
        (15, 35, Doing::Running(0)),
        (35, 50, Doing::Runnable),
        (50, 60, Doing::Running(0)),
        (60, 100, Doing::Uninterruptible),
    ];
    assert_eq!(slices(&pieces, Track::Thread(1)), expected);
    let pcpu = [(15, 35, Doing::Thread(1)), (50, 60, Doing::Thread(1))];
    assert_eq!(slices(&pieces, Track::Pcpu(0)), pcpu);
    let split = summary.threads[0].split;
    assert_eq!((split.running_ns, split.runnable_ns), (30, 20));
    assert_eq!((split.sleeping_ns, split.uninterruptible_ns), (10, 40));
    let longest = summary.waits[0];
    assert_eq!((longest.from_ns, longest.took_ns()), (35, 15));
    let rival = longest.peer.expect("somebody else ran");
    assert_eq!(rival.name, Comm::new("rival"));
    // The other thread has no event.
    assert_eq!(summary.threads[1].split.sleeping_ns, 100);
}

#[test]
fn title_has_the_device_of_a_vhost_worker() {
    let mut worker = actor(1);
    worker.name = Comm::new("vhost-1");
    assert_eq!(worker.title(), "vhost-1");
    worker.device = Some(VhostDevice::Vsock);
    assert_eq!(worker.title(), "vhost-1 vhost-vsock");
}

#[test]
fn state_before_first_event_is_inferred() {
    let first = |what| slices(&trace(&[event(10, 1, what)], 20).0, Track::Thread(1))[0].2;
    assert_eq!(first(on()), Doing::Runnable);
    assert_eq!(first(off(Off::Sleeping)), Doing::Running(0));
    assert_eq!(first(WOKEN), Doing::Sleeping);
    assert_eq!(first(What::Entry), Doing::Running(0));
}

/// Before v6.18: a thread that waits on a throttled run queue is throttled from the start
/// of the throttling to its end.
#[test]
fn exhausted_quota_throttles_waiting_thread() {
    let events = [
        event(10, 1, off(Off::Runnable)),
        event(20, 0, What::Throttled(POD)),
        event(25, 2, WOKEN),
        event(50, 0, What::Unthrottled(POD)),
        event(60, 1, on()),
    ];
    let (pieces, summary) = trace(&events, 60);
    let expected = [
        (0, 10, Doing::Running(0)),
        (10, 20, Doing::Runnable),
        (20, 50, Doing::Throttled),
        (50, 60, Doing::Runnable),
    ];
    assert_eq!(slices(&pieces, Track::Thread(1)), expected);
    assert_eq!(
        slices(&pieces, Track::Thread(2))[1],
        (25, 50, Doing::Throttled)
    );
    let quota = slices(&pieces, Track::Quota(POD));
    assert_eq!(quota, [(20, 50, Doing::Throttled)]);
    assert_eq!(summary.throttles[0].took_ns(), 30);
}

/// Since v6.18: only threads that the kernel reports as throttled are throttled.
#[test]
fn thread_without_throttle_event_only_waits() {
    let stands = |stands| What::Off {
        into: Off::Runnable,
        stands: Some(stands),
        before: Peer::default(),
    };
    let events = [
        event(10, 0, What::Throttled(POD)),
        event(20, 1, stands(true)),
        event(20, 2, stands(false)),
        event(50, 0, What::Unthrottled(POD)),
    ];
    let (_, summary) = trace(&events, 60);
    let times = |at: usize| {
        let split = summary.threads[at].split;
        (split.throttled_ns, split.runnable_ns)
    };
    assert_eq!(times(0), (30, 10));
    assert_eq!(times(1), (0, 40));
}

#[test]
fn earlier_throttle_is_known_after_unthrottle() {
    let events = [
        event(40, 0, What::Unthrottled(POD)),
        event(45, 1, on()),
        event(46, 2, WOKEN),
    ];
    let (pieces, _) = trace(&events, 60);
    let first = slices(&pieces, Track::Thread(1));
    assert_eq!(first[0], (0, 40, Doing::Throttled));
    assert_eq!(first[1], (40, 45, Doing::Runnable));
    let slept = slices(&pieces, Track::Thread(2));
    assert_eq!(slept[0], (0, 46, Doing::Sleeping));
}

/// Guest, exit, a halt with 20 ns of polling and then sleep, guest again.
#[test]
fn vcpu_time_splits_into_guest_host_polling_and_sleep() {
    let halted = What::HaltEnd {
        took_ns: 60,
        slept: true,
    };
    let events = [
        event(10, 1, What::Entry),
        event(40, 1, exit(5, 20)),
        event(65, 1, off(Off::Sleeping)),
        event(90, 1, WOKEN),
        event(92, 1, on()),
        event(105, 1, halted),
        event(110, 1, What::Entry),
        event(150, 1, exit(6, 0)),
    ];
    let (pieces, summary) = trace(&events, 160);
    let expected = [
        (0, 10, Doing::Exit(None)),
        (10, 40, Doing::Guest),
        (45, 65, Doing::Polling),
        (40, 110, Doing::Exit(Some(HLT))),
        (110, 150, Doing::Guest),
        (150, 160, Doing::Exit(Some(HLT))),
    ];
    assert_eq!(slices(&pieces, Track::Guest(1)), expected);
    let thread = &summary.threads[0];
    let guest = thread.split.guest.expect("it has one");
    assert_eq!((guest.guest_ns, guest.polled_ns), (70, 20));
    assert_eq!((guest.exits_recorded, guest.exits_counted), (2, Some(2)));
    assert_eq!(thread.split.running_ns, 133);
    assert_eq!(thread.split.host_ns(), Some(43));
    let halts = thread.exits.iter().find(|(reason, _)| *reason == Some(HLT));
    let halts = halts.expect("it halted").1;
    assert_eq!((halts.count, halts.took_ns, halts.longest_ns), (2, 80, 70));
    // 5 ns before polling, 18 ns after the wake-up, 10 ns at the end.
    assert_eq!(halts.host_ns, 33);
    assert_eq!(thread.split.wall_ns(), 160);
}

#[test]
fn halt_woken_during_polling_is_polling() {
    let halted = What::HaltEnd {
        took_ns: 30,
        slept: false,
    };
    let events = [
        event(10, 1, exit(1, 50)),
        event(45, 1, halted),
        event(50, 1, What::Entry),
    ];
    let (pieces, summary) = trace(&events, 60);
    let polled = slices(&pieces, Track::Guest(1));
    assert!(polled.contains(&(15, 45, Doing::Polling)), "{polled:?}");
    let guest = summary.threads[0].split.guest.expect("it has one");
    assert_eq!((guest.guest_ns, guest.polled_ns), (20, 30));
}

#[test]
fn time_from_loss_to_next_event_is_unknown() {
    let lost = Event {
        lost: Lost {
            states: 2,
            exits: 0,
        },
        ..event(40, 1, on())
    };
    let (pieces, summary) = trace(&[event(10, 1, WOKEN), lost], 50);
    let expected = [
        (0, 10, Doing::Sleeping),
        (10, 40, Doing::Unknown),
        (40, 50, Doing::Running(0)),
    ];
    assert_eq!(slices(&pieces, Track::Thread(1)), expected);
    assert_eq!(summary.threads[0].split.unknown_ns, 30);
    let lost = Event {
        lost: Lost {
            states: 0,
            exits: 3,
        },
        ..event(40, 1, exit(9, 0))
    };
    let events = [event(10, 1, What::Entry), lost];
    let guest = trace(&events, 50).1.threads[0].split.guest;
    let guest = guest.expect("it has one");
    assert_eq!((guest.unknown_ns, guest.guest_ns), (30, 0));
}

/// A context switch without an event.
#[test]
fn inconsistent_event_makes_state_unknown() {
    let events = [
        event(10, 1, off(Off::Runnable)),
        event(30, 1, off(Off::Runnable)),
        event(40, 1, on()),
        event(50, 1, on()),
        event(60, 2, WOKEN),
        event(70, 2, exit(1, 0)),
    ];
    let (pieces, _) = trace(&events, 80);
    let expected = [
        (0, 10, Doing::Running(0)),
        (10, 30, Doing::Unknown),
        (30, 40, Doing::Runnable),
        (40, 50, Doing::Unknown),
        (50, 80, Doing::Running(0)),
    ];
    assert_eq!(slices(&pieces, Track::Thread(1)), expected);
    let other = slices(&pieces, Track::Thread(2));
    assert_eq!(other[1], (60, 70, Doing::Unknown));
}

#[test]
fn later_thread_belongs_to_its_process() {
    let born = What::Born {
        process: 1,
        name: Comm::new("worker"),
    };
    let events = [
        event(10, 5, born),
        event(10, 5, WOKEN),
        event(12, 5, on()),
        event(20, 5, off(Off::Ended)),
        // Its id is reused by another thread.
        event(30, 5, born),
        event(30, 5, WOKEN),
        event(31, 5, on()),
    ];
    let (pieces, summary) = trace(&events, 40);
    let born = pieces.iter().filter_map(|piece| match piece {
        Piece::Actor(actor) if actor.tid == 5 => Some(actor.groups.contains(&POD)),
        _ => None,
    });
    assert_eq!(born.collect::<Vec<_>>(), [true, true]);
    let walls = summary.threads.iter().filter(|one| one.actor.tid == 5);
    let walls: Vec<u64> = walls.map(|one| one.split.wall_ns()).collect();
    assert_eq!(walls, [10, 10]);
}

/// The BPF programs are attached before the trace begins.
#[test]
fn thread_started_just_before_is_traced() {
    let born = What::Born {
        process: 1,
        name: Comm::new("worker"),
    };
    let mut out = Vec::new();
    let mut timeline = Timeline::new(100, vec![actor(1), actor(2)], &mut out);
    for event in [
        event(80, 5, born),
        event(85, 5, WOKEN),
        event(90, 2, off(Off::Ended)),
        event(110, 5, on()),
    ] {
        timeline.feed(&event, &mut out);
    }
    let summary = timeline.end(120, 0, |_| false, &mut out);
    let tids: Vec<u32> = summary.threads.iter().map(|one| one.actor.tid).collect();
    assert_eq!(tids, [1, 5]);
    let expected = [(100, 110, Doing::Runnable), (110, 120, Doing::Running(0))];
    assert_eq!(slices(&out, Track::Thread(5)), expected);
}

fn any_what() -> impl Strategy<Value = What> {
    let into = prop_oneof![Just(Off::Runnable), Just(Off::Sleeping)];
    prop_oneof![
        Just(on()),
        into.prop_map(off),
        Just(WOKEN),
        Just(What::Moved),
        Just(What::Entry),
        Just(What::ToVmm),
        (0..50u32).prop_map(|poll_ns| exit(0, poll_ns)),
        (0..80u64, any::<bool>()).prop_map(|(took_ns, slept)| What::HaltEnd { took_ns, slept }),
        Just(What::Throttled(POD)),
        Just(What::Unthrottled(POD)),
    ]
}

proptest! {
    /// For any sequence of events: a thread's states sum to the traced time, a vCPU's
    /// shares sum to its run time, and slices nest.
    #[test]
    fn every_moment_has_exactly_one_state(
        steps in proptest::collection::vec((1..40u64, 1..3u32, 0..3u32, any_what(), 0..4u32), 1..80)
    ) {
        let mut now_ns = 0;
        let mut lost = [Lost::default(); 3];
        let mut events = Vec::new();
        for (step_ns, tid, pcpu, what, losses) in steps {
            now_ns += step_ns;
            let lost = &mut lost[tid as usize];
            lost.states += u32::from(losses == 1);
            lost.exits += u32::from(losses == 2);
            events.push(Event { time_ns: now_ns, tid, pcpu, lost: *lost, what });
        }
        let end_ns = now_ns + 10;
        let (pieces, summary) = trace(&events, end_ns);
        for thread in &summary.threads {
            prop_assert_eq!(thread.split.wall_ns(), end_ns);
            if let Some(guest) = thread.split.guest {
                let shares = guest.guest_ns + guest.polled_ns + guest.unknown_ns;
                prop_assert!(shares <= thread.split.running_ns, "{thread:?}");
            }
        }
        for track in [Track::Thread(1), Track::Guest(1), Track::Guest(2), Track::Quota(POD)] {
            let all = slices(&pieces, track);
            for (at, one) in all.iter().enumerate() {
                prop_assert!(one.0 < one.1, "{one:?}");
                for other in &all[at + 1..] {
                    let apart = one.1 <= other.0 || other.1 <= one.0;
                    let nested = other.0 <= one.0 && one.1 <= other.1;
                    prop_assert!(apart || nested, "{track:?}: {one:?} {other:?}");
                }
            }
        }
    }
}

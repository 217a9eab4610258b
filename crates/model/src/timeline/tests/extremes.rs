//! Impossible times: they can lead to wrong values, but must not cause a failure.

use super::{event, exit, off, on, trace};
use crate::timeline::event::{Off, What};
use crate::vocab::Comm;

#[test]
fn slice_at_maximum_time_has_an_end() {
    let last = u64::MAX;
    let halt = What::HaltEnd {
        took_ns: last,
        slept: true,
    };
    let (_, summary) = trace(
        &[
            event(1, 1, on()),
            event(last, 1, exit(1, u32::MAX)),
            event(last, 1, halt),
            event(last, 1, off(Off::Sleeping)),
        ],
        last,
    );
    assert_eq!(summary.threads[0].split.wall_ns(), last);
}

/// A vCPU whose run time went back: its time counts once.
#[test]
fn backward_time_counts_once() {
    let mut events = vec![event(1, 1, on()), event(2, 1, What::Entry)];
    for round in 0..8 {
        events.push(event(1_000, 1, exit(round, 0)));
        events.push(event(3, 1, What::Entry));
    }
    let (_, summary) = trace(&events, 2_000);
    let split = summary.threads[0].split;
    let guest = split.guest.expect("its guest time is known");
    assert!(guest.guest_ns <= split.running_ns, "{split:?}");
}

/// The exit event was lost, and the id was reused by another thread.
#[test]
fn replaced_thread_ends_at_replacement() {
    let born = What::Born {
        process: 1,
        name: Comm::new("next"),
    };
    let (_, summary) = trace(&[event(5, 1, on()), event(20, 1, born)], 30);
    let threads = summary.threads.iter().filter(|one| one.actor.tid == 1);
    let splits: Vec<_> = threads.map(|one| one.split).collect();
    assert_eq!(splits[0].runnable_ns, 5);
    assert_eq!((splits[0].running_ns, splits[0].unknown_ns), (0, 15));
    assert_eq!(splits[1].sleeping_ns, 10);
}

/// Clocks of CPUs that are far apart: pauses begin before the previous pause has ended.
#[test]
fn overlapping_pauses_do_not_exceed_halt() {
    let late = u64::MAX / 2;
    let halt = What::HaltEnd {
        took_ns: u64::MAX,
        slept: false,
    };
    let mut events = vec![event(1, 1, on()), event(2, 1, exit(1, u32::MAX))];
    for _ in 0..8 {
        events.push(event(3, 1, off(Off::Runnable)));
        events.push(event(late, 1, on()));
    }
    events.push(event(u64::MAX, 1, halt));
    events.push(event(u64::MAX, 1, What::Entry));
    let (_, summary) = trace(&events, u64::MAX);
    let split = summary.threads[0].split;
    let guest = split.guest.expect("its guest time is known");
    assert!(guest.polled_ns <= split.running_ns, "{split:?}");
}

//! Co-stop of timelines whose answer is known.

use proptest::prelude::*;

use super::{POD, WOKEN, actor, event, off, on};
use crate::timeline::co_stop::{CoStop, Meter};
use crate::timeline::event::{Event, Lost, Off, What};
use crate::timeline::piece::{Actor, Doing, Slice, Track};
use crate::timeline::{Summary, Timeline};

fn vcpu(tid: u32) -> Actor {
    Actor {
        vcpu: Some(tid),
        ..actor(tid)
    }
}

/// Traces the vCPUs of threads 1 to `vcpus` and thread 9, which runs no vCPU.
fn trace(vcpus: u32, events: &[Event], end_ns: u64) -> Summary {
    let mut out = Vec::new();
    let actors = (1..=vcpus).map(vcpu).chain([actor(9)]);
    let mut timeline = Timeline::new(0, actors.collect(), &mut out);
    for event in events {
        timeline.feed(event, &mut out);
    }
    timeline.end(end_ns, 0, |_| false, &mut out)
}

fn co_stop(time_ns: u64, contended_ns: u64, unknown_ns: u64) -> CoStop {
    CoStop {
        time_ns,
        contended_ns,
        unknown_ns,
    }
}

#[test]
fn vcpus_that_take_turns_on_one_cpu_are_co_stopped() {
    // One always runs and the other waits, until both sleep.
    let mut events = vec![event(10, 1, WOKEN), event(10, 2, WOKEN)];
    for turn in 0..4 {
        let (one, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        let at_ns = 20 + turn * 10;
        if turn > 0 {
            events.push(event(at_ns, other, off(Off::Runnable)));
        }
        events.push(event(at_ns, one, on()));
    }
    events.push(event(60, 2, off(Off::Sleeping)));
    events.push(event(60, 1, on()));
    events.push(event(70, 1, off(Off::Sleeping)));
    // From 20 to 60; at first both wait, at last one is alone.
    assert_eq!(trace(2, &events, 100).co_stop, Some(co_stop(40, 40, 0)));
}

#[test]
fn vcpus_that_run_or_wait_at_once_are_not_co_stopped() {
    let events = [
        event(10, 1, WOKEN),
        event(10, 2, WOKEN),
        event(20, 1, on()),
        event(20, 2, on()),
        event(40, 1, off(Off::Sleeping)),
        event(40, 2, off(Off::Sleeping)),
        // A thread without a vCPU waits while a vCPU runs.
        event(50, 9, WOKEN),
        event(50, 1, WOKEN),
        event(50, 1, on()),
    ];
    assert_eq!(trace(2, &events, 100).co_stop, Some(co_stop(0, 0, 0)));
}

#[test]
fn single_vcpu_has_no_co_stop() {
    assert_eq!(trace(1, &[event(10, 1, WOKEN)], 100).co_stop, None);
    assert_eq!(trace(0, &[], 100).co_stop, None);
}

/// The state before the first event counts too.
#[test]
fn state_before_first_event_counts() {
    let events = [event(30, 1, off(Off::Sleeping)), event(50, 2, on())];
    // vCPU 1 ran from 0 to 30, vCPU 2 waited from 0 to 50.
    assert_eq!(trace(2, &events, 100).co_stop, Some(co_stop(30, 30, 0)));
}

#[test]
fn throttled_vcpu_counts_apart_from_contended_one() {
    let moved = |pcpu| Event {
        pcpu,
        ..event(5, 1, WOKEN)
    };
    let on_1 = |at_ns| Event {
        pcpu: 1,
        ..event(at_ns, 1, on())
    };
    let events = [
        moved(1),
        on_1(10),
        event(10, 2, WOKEN),
        event(20, 0, What::Throttled(POD)),
        event(50, 0, What::Unthrottled(POD)),
        event(60, 2, on()),
        Event {
            pcpu: 1,
            ..event(60, 1, off(Off::Sleeping))
        },
    ];
    // vCPU 1 ran from 10 to 60; vCPU 2 waited all of it, from 20 to 50 throttled.
    assert_eq!(trace(2, &events, 100).co_stop, Some(co_stop(50, 20, 0)));
}

#[test]
fn lost_states_are_error_of_co_stop() {
    let lost = Event {
        lost: Lost {
            states: 1,
            exits: 0,
        },
        ..event(60, 2, on())
    };
    let events = [
        event(10, 1, WOKEN),
        event(10, 1, on()),
        event(20, 2, WOKEN),
        event(30, 2, on()),
        event(40, 2, off(Off::Runnable)),
        lost,
    ];
    // vCPU 2 waited from 20 to 30. Its state from 40 to 60 is unknown.
    assert_eq!(trace(2, &events, 100).co_stop, Some(co_stop(10, 10, 20)));
}

fn slice(tid: u32, from_ns: u64, to_ns: u64, what: Doing) -> Slice {
    Slice {
        track: Track::Thread(tid),
        from_ns,
        to_ns,
        what,
        peer: None,
    }
}

/// A vCPU that runs all the time, and one that waits now and then: the older half is
/// summed up many times before the long state ends.
#[test]
fn long_state_counts_although_changes_are_bounded() {
    let mut meter = Meter::keeping(8, [1, 2]);
    for turn in 0..1000 {
        let at_ns = turn * 10;
        meter.add(&slice(2, at_ns, at_ns + 4, Doing::Runnable));
        meter.add(&slice(2, at_ns + 4, at_ns + 7, Doing::Running(1)));
        meter.add(&slice(2, at_ns + 7, at_ns + 10, Doing::Sleeping));
        if meter.is_full() {
            let asleep = Some((Doing::Sleeping, at_ns + 10));
            let present = |tid| {
                if tid == 1 {
                    Some((Doing::Running(0), 0))
                } else {
                    asleep
                }
            };
            meter.sum_up(present);
        }
        assert!(!meter.is_full(), "the number of changes is bounded");
    }
    meter.add(&slice(1, 0, 10_000, Doing::Running(0)));
    assert_eq!(meter.end(), Some(co_stop(4000, 4000, 0)));
}

/// The first event of a vCPU comes after its state was needed.
#[test]
fn state_known_too_late_is_error_of_co_stop() {
    let mut meter = Meter::keeping(8, [1, 2]);
    for turn in 0..100 {
        let at_ns = turn * 10;
        meter.add(&slice(2, at_ns, at_ns + 10, Doing::Runnable));
        if meter.is_full() {
            meter.sum_up(|_| None);
        }
    }
    meter.add(&slice(1, 0, 1000, Doing::Running(0)));
    let found = meter.end().expect("two vCPUs");
    assert_eq!(found.time_ns + found.unknown_ns, 1000, "{found:?}");
    assert!(found.unknown_ns >= 900, "{found:?}");
}

proptest! {
    /// The sum equals one over all states, in whatever order they end, and however many
    /// changes are kept.
    #[test]
    fn co_stop_equals_sum_over_every_moment(
        kept in 4usize..40,
        states in proptest::collection::vec((0u32..3, 1u64..20, 0usize..4), 0..200),
    ) {
        let kinds = [Doing::Sleeping, Doing::Running(0), Doing::Runnable, Doing::Throttled];
        let mut slices: Vec<Slice> = Vec::new();
        let mut ends = [0u64; 3];
        for (tid, took_ns, kind) in states {
            let end = &mut ends[tid as usize];
            slices.push(slice(tid, *end, *end + took_ns, kinds[kind]));
            *end += took_ns;
        }
        slices.sort_by_key(|slice| slice.to_ns);
        let last_ns = ends.into_iter().max().unwrap_or(0);
        let is = |at_ns: u64, what: Doing| slices.iter().any(|slice| {
            slice.what == what && (slice.from_ns..slice.to_ns).contains(&at_ns)
        });
        let (mut time_ns, mut contended_ns) = (0, 0);
        for at_ns in 0..last_ns {
            let runs = is(at_ns, kinds[1]);
            let contends = is(at_ns, kinds[2]);
            time_ns += u64::from(runs && (contends || is(at_ns, kinds[3])));
            contended_ns += u64::from(runs && contends);
        }
        let mut meter = Meter::keeping(kept, [0, 1, 2]);
        for (at, one) in slices.iter().enumerate() {
            meter.add(one);
            if meter.is_full() {
                // The states that have begun and not ended.
                let rest = slices.get(at + 1..).unwrap_or_default();
                meter.sum_up(|tid| {
                    let mut rest = rest.iter();
                    let next = rest.find(|slice| slice.track == Track::Thread(tid))?;
                    Some((next.what, next.from_ns))
                });
            }
        }
        prop_assert_eq!(meter.end(), Some(co_stop(time_ns, contended_ns, 0)));
    }
}

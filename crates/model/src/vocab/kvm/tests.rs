use super::binary::NAMES;
use super::{COUNTERS, ExitCounts, HaltPoll, KvmCounters, KvmValues, OTHER_EXITS, Polls, Yields};

fn counters(count: u64, pf_taken: Option<u64>) -> KvmCounters {
    KvmCounters::from(KvmValues {
        halt_poll_ns: Some(HaltPoll {
            success: count,
            fail: count,
        }),
        halt_wait_ns: Some(count),
        exits: Some(ExitCounts([count; 7])),
        pf_fixed: Some(count),
        pf_taken,
        halt_wakeups: Some(count),
        halt_polls: Some(Polls {
            attempted: count,
            successful: count,
            invalid: count,
        }),
        yields: Some(Yields {
            attempted: count,
            successful: count,
        }),
        preemptions_reported: Some(count),
    })
}

#[test]
fn each_counter_has_its_own_place() {
    let mut places = [0; COUNTERS];
    (1..).zip(&mut places).for_each(|(place, of)| *of = place);
    let counters = KvmCounters(places);
    let values = KvmValues::from(counters);
    assert_eq!(KvmCounters::from(values), counters);
    let other = values.exits.map(|exits| exits.other());
    assert_eq!(other, Some(places[OTHER_EXITS]));
}

#[test]
fn absent_counter_is_taken_from_the_other_and_has_no_difference() {
    let (now, then) = (counters(7, Some(9)), counters(5, None));
    assert_eq!(now.with(&then, u64::saturating_add), counters(12, Some(9)));
    assert_eq!(then.with(&now, u64::max), counters(7, Some(9)));
    assert_eq!(now.since(&then), counters(2, None));
    assert!(then.fell_from(&now) && !now.fell_from(&then));
}

#[test]
fn unclassified_exits_alone_are_not_a_fall() {
    let (mut now, then) = (counters(7, None), counters(7, None));
    now.0[OTHER_EXITS] = 0;
    assert!(!now.fell_from(&then));
    now.0[1] = 6;
    assert!(now.fell_from(&then));
}

#[test]
fn classes_exceeding_total_leave_no_other_exits() {
    assert_eq!(ExitCounts::of(10, [1, 2, 3, 0, 0, 0]).other(), 4);
    assert_eq!(ExitCounts::of(5, [1, 2, 3, 0, 0, 0]).other(), 0);
}

#[test]
fn kept_counters_equal_shown_counters() {
    let now = counters(7, None);
    let kept = serde_json::to_string(&now).expect("JSON");
    assert_eq!(
        serde_json::from_str::<KvmCounters>(&kept).expect("JSON"),
        now
    );
}

#[test]
fn names_in_recordings_are_those_of_the_values() {
    let mut places = [0; COUNTERS];
    (1..).zip(&mut places).for_each(|(place, of)| *of = place);
    let json = serde_json::to_value(KvmCounters(places)).expect("it can be printed");
    let at = |path: &str| json.pointer(path).and_then(serde_json::Value::as_u64);
    for (name, place) in NAMES.into_iter().zip(places) {
        let path = match name {
            "halt_poll_success_ns" => "/halt_poll_ns/success".to_owned(),
            "halt_poll_fail_ns" => "/halt_poll_ns/fail".to_owned(),
            _ => match name.strip_suffix("_exits") {
                Some(kind) => format!("/exits/{kind}"),
                None => match name.split_once("s_") {
                    Some(("poll", kind)) => format!("/halt_polls/{kind}"),
                    Some(("yield", kind)) => format!("/yields/{kind}"),
                    _ => format!("/{name}"),
                },
            },
        };
        assert_eq!(at(&path), Some(place), "{name} at {path}");
    }
}

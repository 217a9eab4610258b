use super::{BindingMeter, QuotaMeter};
use crate::account::charge::PodSums;
use crate::account::level::LevelReading;
use crate::facts::{Bandwidth, CgroupFact};
use crate::snapshot::Quota;
use crate::vocab::{CgroupId, DURATIONS, Durations, Role, Scope, Throttle};

fn fact(id: u64) -> CgroupFact {
    CgroupFact {
        id: CgroupId(id),
        parent: None,
        path: format!("/pod/{id}").into(),
        bandwidth: None,
        memory: None,
    }
}

fn level<'a>(
    fact: &'a CgroupFact,
    periods: u64,
    throttle: Option<&'a Throttle>,
) -> LevelReading<'a> {
    let mut used = PodSums::default();
    used.own[0] = periods * 7;
    LevelReading {
        scope: Scope::Pod,
        fact,
        bandwidth: Bandwidth {
            periods,
            throttled_periods: periods / 10,
            throttled_ns: periods * 10,
            ..Bandwidth::default()
        },
        throttle,
        used,
    }
}

fn totals(shown: &Quota) -> [u64; 4] {
    [
        shown.periods,
        shown.throttled_periods,
        shown.throttled_ns,
        shown.used_ns.get(&Role::Vcpu).copied().unwrap_or(0),
    ]
}

#[test]
fn recreated_cgroup_continues_counters() {
    let (five, six) = (fact(5), fact(6));
    let mut meter = QuotaMeter::default();
    meter.read(&level(&five, 100, None));
    meter.succeed();
    let last = level(&six, 20, None);
    meter.read(&last);
    assert_eq!(totals(&meter.show(&last.limit(true))), [120, 12, 1200, 840]);
}

#[test]
fn newly_binding_level_adds_only_later_counts() {
    let (mut scope, mut five, mut six) = <(BindingMeter, QuotaMeter, QuotaMeter)>::default();
    let (five_fact, six_fact) = (fact(5), fact(6));
    let mut read = |meter: &mut QuotaMeter, level: &LevelReading<'_>| {
        let is_other = scope.path().is_some_and(|path| *path != level.fact.path);
        if is_other {
            scope.switch_to(meter);
        }
        meter.read(level);
        scope.read(level, meter);
        totals(&scope.show(&level.limit(true)))
    };
    let first = read(&mut five, &level(&five_fact, 100, None));
    assert_eq!(first, [100, 10, 1000, 700]);
    six.read(&level(&six_fact, 5000, None));
    let turned = read(&mut six, &level(&six_fact, 5050, None));
    assert_eq!(turned, [150, 15, 1500, 1050], "what the interval added");
    let back = read(&mut five, &level(&five_fact, 110, None));
    assert_eq!(back, [160, 16, 1600, 1120]);
}

#[test]
fn detached_meter_keeps_counts_and_continues_with_its_cgroup() {
    let five = fact(5);
    let throttle = |of: u64| Throttle {
        throttles: of,
        wall_ns: of,
        unthrottles: Durations {
            counts: [of; DURATIONS],
            sum_ns: of,
        },
    };
    let (early, late) = (throttle(3), throttle(5));
    let mut meter = QuotaMeter::default();
    meter.read(&level(&five, 100, Some(&early)));
    meter.detach();
    let text = serde_json::to_string(&meter).expect("it is plain data");
    let mut next: QuotaMeter = serde_json::from_str(&text).expect("it was just written");
    assert!(!next.is_plain(), "it is kept");
    let level = level(&five, 130, Some(&late));
    next.read(&level);
    assert_eq!(totals(&next.show(&level.limit(true)))[..3], [130, 13, 1300]);
    let seen = next.throttle().expect("it is followed");
    assert_eq!((seen.throttles, seen.unthrottles.counts[0]), (5, 5));
}

#[test]
fn throttling_of_new_level_since_last_reading_is_unknown() {
    let five = fact(5);
    let mut meter = QuotaMeter::default();
    let now = level(&five, 100, None);
    assert_eq!(meter.throttled_since(&now.bandwidth), None);
    meter.read(&now);
    let later = level(&five, 120, None);
    assert_eq!(meter.throttled_since(&later.bandwidth), Some((2, 200)));
}

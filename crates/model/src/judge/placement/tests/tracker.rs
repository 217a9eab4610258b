use super::{Guest, ONE_NODE, SECOND, judge_one, vm};
use crate::judge::placement::tracker::Tracker;
use crate::judge::placement::types::VmPlacement;
use crate::vocab::MismatchKind::{HelperOnVcpu, SmtShared, SmtSplit};
use crate::vocab::{MismatchKind, Role};

const TWO_THREADS: Guest = Guest(1, 2, 2);

fn wrong() -> VmPlacement {
    vm("a", TWO_THREADS, &["1", "2", "17", "18"]).ran_on(&[1, 2, 17, 18])
}

fn right() -> VmPlacement {
    vm("a", TWO_THREADS, &["1", "17", "2", "18"]).ran_on(&[1, 17, 2, 18])
}

/// One of the misplaced pairs was corrected.
fn half() -> VmPlacement {
    vm("a", TWO_THREADS, &["1", "17", "4", "18"]).ran_on(&[1, 17, 4, 18])
}

fn since(tracker: &mut Tracker, now_s: u64, vm: &VmPlacement) -> Vec<(MismatchKind, u64)> {
    let judged = judge_one(&ONE_NODE.host(), vm.clone());
    tracker.update(now_s * SECOND, vm, &judged);
    let since = |found| tracker.since_ns(found).expect("it was just found") / SECOND;
    let found = judged.mismatches.iter();
    found.map(|found| (found.kind, since(found))).collect()
}

fn misplaced(tracker: &Tracker, kind: MismatchKind) -> u64 {
    let mut by_kind = tracker.misplaced_ns();
    by_kind.find(|(of, _)| *of == kind).expect("every kind").1
}

#[test]
fn since_is_kept_until_mismatch_ends() {
    let mut tracker = Tracker::default();
    let first = since(&mut tracker, 10, &wrong());
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|(_, since)| *since == 10));
    assert_eq!(since(&mut tracker, 20, &wrong()), first);
    // vCPUs 2 and 3 are still split.
    assert_eq!(since(&mut tracker, 30, &half()), [(SmtSplit, 10)]);
    assert_eq!(since(&mut tracker, 40, &right()), []);
    let again = since(&mut tracker, 50, &wrong());
    assert!(again.iter().all(|(_, since)| *since == 50));
}

#[test]
fn run_time_counts_once_per_kind_and_never_falls() {
    let mut tracker = Tracker::default();
    assert_eq!(tracker.misplaced_ns().count(), MismatchKind::ALL.len());
    since(&mut tracker, 10, &wrong());
    // Four vCPUs, ten seconds each.
    assert_eq!(misplaced(&tracker, SmtSplit), 40 * SECOND);
    assert_eq!(misplaced(&tracker, SmtShared), 40 * SECOND);
    since(&mut tracker, 20, &half());
    assert_eq!(misplaced(&tracker, SmtSplit), 60 * SECOND);
    since(&mut tracker, 30, &right());
    assert_eq!(misplaced(&tracker, SmtSplit), 60 * SECOND);
    assert_eq!(misplaced(&tracker, SmtShared), 40 * SECOND);
    // Two roles conflict with the same vCPUs: the time of the vCPUs counts once.
    let with_helpers = right()
        .helper(Role::Vhost, "1-2")
        .helper(Role::Emulator, "1-2");
    since(&mut tracker, 40, &with_helpers);
    assert_eq!(misplaced(&tracker, HelperOnVcpu), 20 * SECOND);
}

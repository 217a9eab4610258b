//! Bounds of co-stop, compared with timelines whose answer is known.

use proptest::prelude::*;

use crate::account::meter::Times;
use crate::snapshot::TimeRange;

/// The bounds for run times and waits of vCPUs.
fn bounds(times: &[[u64; 2]], pcpus: Option<usize>, length_ns: u64) -> TimeRange {
    let vcpus = times.iter().map(|[cpu_ns, wait_ns]| Times {
        cpu_ns: *cpu_ns,
        wait_ns: *wait_ns,
    });
    super::bounds(&vcpus.collect::<Vec<_>>(), pcpus, length_ns)
}

fn range(least_ns: u64, most_ns: u64) -> TimeRange {
    TimeRange { least_ns, most_ns }
}

#[test]
fn two_vcpus_on_one_pcpu_have_exact_co_stop() {
    // Always one runs and the other waits.
    let halves = [[500, 500], [500, 500]];
    assert_eq!(bounds(&halves, Some(1), 1000), range(1000, 1000));
    // Another thread takes 200 of it, in which both wait.
    let less = [[400, 600], [400, 600]];
    assert_eq!(bounds(&less, Some(1), 1000), range(800, 800));
    // With two pCPUs both may also run at once, and wait at once.
    assert_eq!(bounds(&halves, Some(2), 1000), range(0, 1000));
    assert_eq!(bounds(&halves, None, 1000), range(0, 1000));
}

#[test]
fn run_and_wait_beyond_interval_overlap() {
    assert_eq!(bounds(&[[900, 0], [100, 700]], None, 1000), range(600, 700));
    // The longest run and the longest wait of one vCPU never overlap.
    assert_eq!(bounds(&[[900, 100], [0, 0]], None, 1000), range(0, 0));
}

#[test]
fn single_vcpu_has_no_co_stop() {
    assert_eq!(bounds(&[[400, 600]], Some(1), 1000), range(0, 0));
    assert_eq!(bounds(&[], Some(0), 1000), range(0, 0));
}

#[test]
fn vcpus_that_never_wait_have_no_co_stop() {
    assert_eq!(bounds(&[[900, 0], [1000, 0]], Some(2), 1000), range(0, 0));
}

#[test]
fn impossible_times_keep_bounds_in_order() {
    let most = u64::MAX;
    let found = bounds(&[[most, most], [most, most]], Some(1), 1);
    assert_eq!(found, range(1, 1));
}

proptest! {
    /// Timelines of known states: 0 is idle, 1 runs, 2 waits. At most `pcpus` run at once.
    #[test]
    fn bounds_hold_for_every_timeline(
        pcpus in 1usize..5,
        vcpus in 1usize..6,
        steps in proptest::collection::vec((1u64..50, proptest::collection::vec(0u8..3, 5)), 1..20),
    ) {
        let mut times = vec![[0u64; 2]; vcpus];
        let (mut length_ns, mut truth_ns) = (0, 0);
        for (took_ns, states) in steps {
            let mut free = pcpus;
            let mut seen = [false; 2];
            for (times, state) in times.iter_mut().zip(states) {
                let at = match state {
                    1 if free > 0 => { free -= 1; 0 }
                    0 => continue,
                    _ => 1,
                };
                times[at] += took_ns;
                seen[at] = true;
            }
            length_ns += took_ns;
            truth_ns += if seen == [true; 2] { took_ns } else { 0 };
        }
        for known in [Some(pcpus), None] {
            let found = bounds(&times, known, length_ns);
            prop_assert!(
                (found.least_ns..=found.most_ns).contains(&truth_ns),
                "{truth_ns} is not in {found:?}: {times:?} in {length_ns} ns on {known:?}"
            );
        }
    }
}

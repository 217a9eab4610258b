//! Ten thousand VMs start and end as fast as the host allows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use virtlens_tests::reader;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::watched::{DRIFT_NS, LINGER, State, Watched};

const STARTS: usize = 10_000;

/// VMs at once: more of them start no faster on two CPUs.
const AT_ONCE: usize = 4;

/// Longer than the interval of 10 s at which the agent judges and reads all residency.
const JUDGED: Duration = Duration::from_secs(11);

/// Lifetime of a VM: long enough that scrapes see some of them and the agent could retain
/// them.
const LIFE: Duration = Duration::from_millis(10);

/// Starts VMs in separate pods, one after another, until the number is reached.
fn come_and_go(started: &AtomicUsize) {
    loop {
        let number = started.fetch_add(1, Ordering::Relaxed);
        if number >= STARTS {
            break;
        }
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let name = format!("passing-{number}");
        let args = ["--vcpus", "1", "--start", "spin", "--name", &name];
        let vm = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
        // Otherwise the vCPU has hardly begun when it ends, and no scrape sees the VM.
        sleep(LIFE);
        drop(vm);
    }
}

/// State of the agent with only the steady VM. By the first check the others have ended,
/// by the second their final values have expired, and a judgement has then read all maps
/// without them.
fn at_rest(watched: &Watched) -> State {
    for wait in [LINGER, LINGER, JUDGED, LINGER] {
        watched.state();
        sleep(wait);
    }
    watched.state()
}

#[test]
fn ten_thousand_vms_leave_no_state() {
    let test = "ten_thousand_vms_leave_no_state";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let mut watched = Watched::start();
    watched.work();
    let before = at_rest(&watched);
    println!("before: {before}");
    let (began, started) = (Instant::now(), AtomicUsize::new(0));
    let (mut early, mut most_series) = (None, 0);
    thread::scope(|scope| {
        let starting: Vec<_> = (0..AT_ONCE)
            .map(|_| scope.spawn(|| come_and_go(&started)))
            .collect();
        while starting.iter().any(|one| !one.is_finished()) {
            watched.work();
            let state = watched.state();
            most_series = most_series.max(state.series);
            let number = started.load(Ordering::Relaxed);
            // By then the agent has seen the greatest number of VMs at once.
            if early.is_none() && number > STARTS / 5 {
                println!("after {number}: {state}");
                early = Some(state);
            }
            sleep(Duration::from_millis(100));
        }
    });
    let took = began.elapsed();
    let after = at_rest(&watched);
    println!("after {STARTS} in {} s: {after}", took.as_secs());
    println!("at most {most_series} series at once");
    assert!(most_series > 2 * before.series, "it has met none of them");
    let early = early.expect("it was asked meanwhile");

    // The remaining findings and CPUs belong to the steady VM.
    assert_eq!(after.foreign_series, 0, "series of VMs that are gone");
    for (map, fill) in &after.entries {
        // Maps that grow with the steady VM: names of threads, and CPUs that it ran on.
        let grows = ["retired", "residency"].contains(&map.as_str());
        let allowed = before.entries[map] + if grows { 8.0 } else { 0.0 };
        assert!(
            *fill <= allowed,
            "{map}: {fill} entries, before {}",
            before.entries[map]
        );
    }
    assert!(
        after.resident_bytes <= early.resident_bytes * 1.05,
        "it grows: {early}; {after}"
    );
    assert!(after.open_fds <= before.open_fds, "{before}; {after}");
    assert!(after.drift_ns.unsigned_abs() <= DRIFT_NS, "{after}");
}

//! Ten thousand VMs come and go as fast as the host lets them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::reader;
use crate::watched::{DRIFT_NS, LINGER, State, Watched};

const STARTS: usize = 10_000;

/// More of them at once start no sooner on two CPUs.
const AT_ONCE: usize = 4;

/// The agent judges, and reads all of where vCPUs ran, every 10 s.
const JUDGED: Duration = Duration::from_secs(11);

/// A scrape meets some of them, and that is when they could be kept.
const LIFE: Duration = Duration::from_millis(10);

/// VMs in pods of their own, one after the other, until there were enough.
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
        // Else its vCPU has hardly begun when it ends, and no scrape meets it.
        sleep(LIFE);
        drop(vm);
    }
}

/// The agent when nothing but the steady VM is there: by the first look the others
/// have ended, by the second they linger no more, and after a judgement all maps have
/// been read without them.
fn at_rest(watched: &Watched) -> State {
    for wait in [LINGER, LINGER, JUDGED, LINGER] {
        watched.state();
        sleep(wait);
    }
    watched.state()
}

#[test]
fn ten_thousand_vms_leave_nothing_behind() {
    let test = "ten_thousand_vms";
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
            // By then it has met as many VMs at once as it will.
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

    // What has been found of the steady VM meanwhile, and its CPUs, are its own.
    assert_eq!(after.foreign_series, 0, "series of VMs that are gone");
    for (map, fill) in &after.entries {
        // What the steady VM itself has more of by now: names of threads, CPUs it was on.
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

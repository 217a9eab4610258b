//! An hour, or `SOAK_SECONDS`, of VMs that work, start and end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use virtlens_tests::reader;
use virtlens_tests::{Minivm, need};

use crate::watched::{DRIFT_NS, Watched};

/// Seconds between two checks of the agent's state; it is scraped every second.
const LOOK_EVERY: u32 = 60;

/// Starts and ends a few VMs at a moderate pace.
fn come_and_go(is_over: &AtomicBool) {
    for number in 0u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let names = [0, 1, 2].map(|at| format!("passing-{number}-{at}"));
        let vms = names
            .each_ref()
            .map(|name| Minivm::start(["--vcpus", "2", "--start", "duty:5", "--name", name]));
        sleep(Duration::from_secs(3));
        drop(vms);
    }
}

#[test]
fn hour_of_load_does_not_grow_agent() {
    let test = "hour_of_load_does_not_grow_agent";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let seconds = std::env::var("SOAK_SECONDS");
    let seconds = seconds.map_or(3600, |text| text.parse().expect("SOAK_SECONDS is a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut watched = Watched::start();
    let is_over = AtomicBool::new(false);
    let states = thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| come_and_go(&is_over));
        let mut states = Vec::new();
        for second in 0u32.. {
            let state = watched.state();
            if second % LOOK_EVERY == 0 {
                println!("{second} s: {state}");
                states.push(state);
            }
            if Instant::now() > end {
                break;
            }
            watched.work();
            sleep(Duration::from_secs(1));
        }
        states
    });
    let last = watched.state();
    println!("at the end: {last}");
    // Caches may fill during the first tenth of the time.
    let early = &states[states.len() / 10];
    assert!(
        last.resident_bytes <= early.resident_bytes * 1.05,
        "it grows: {early}; {last}"
    );
    assert!(last.open_fds <= early.open_fds, "{early}; {last}");
    for state in states.iter().chain([&last]) {
        assert!(state.drift_ns.unsigned_abs() <= DRIFT_NS, "{state}");
    }
}

/// Ends the background loop on drop, also on a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

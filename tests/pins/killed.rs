//! The agent is killed again and again, at any moment, while VMs work, come and go.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use virtlens_tests::{Agent, Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::reader::{self, MS, assert_close};
use crate::root::Root;
use crate::run;
use crate::scraped::{Counters, counters, cpu_ns};

/// How often it is killed. In an emulated machine, which is slow, it takes seconds to
/// start; `make test-pins` sets it to a hundred.
fn kills() -> u32 {
    if is_slow() {
        return 10;
    }
    let kills = std::env::var("VIRTLENS_KILLS");
    kills.map_or(25, |text| text.parse().expect("VIRTLENS_KILLS is a number"))
}

fn is_slow() -> bool {
    std::env::var_os("VIRTLENS_VM").is_some()
}

/// Longer than it takes to start, ms.
fn start_ms() -> u64 {
    if is_slow() { 5000 } else { 400 }
}

/// Numbers that differ from run to run; the first is printed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        println!("dice: {}", now.as_nanos());
        Self(u64::try_from(now.as_nanos() & u128::from(u64::MAX)).expect("masked"))
    }

    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// Kills an agent at some moment of its life: half of them while they start.
fn live_and_die(command: Command, dice: &mut Dice, seen: &mut Counters) {
    let mut command = command;
    if dice.below(2) == 0 {
        let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
        sleep(Duration::from_millis(dice.below(start_ms())));
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
        return;
    }
    let agent = Agent::start(command);
    for _ in 0..dice.below(3) {
        not_fallen(seen, counters(&agent));
        sleep(Duration::from_millis(dice.below(100)));
    }
    // Killed with the value.
}

fn not_fallen(seen: &mut Counters, now: Counters) {
    for (series, value) in now {
        let before = seen.entry(series.clone()).or_insert(value);
        assert!(value >= *before, "{series} fell from {before} to {value}");
        *before = value;
    }
}

/// Threads are born and die, VMs come and go, until it is over.
fn churn(guest: &mut Minivm, is_over: &AtomicBool) -> u64 {
    let mut burned = 0;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        burned += guest.spawn(3, 5, "passing");
        let name = format!("passing-{number}");
        drop(Minivm::start([
            "--vcpus", "1", "--start", "duty:50", "--name", &name,
        ]));
    }
    burned
}

#[test]
fn an_agent_killed_again_and_again_has_lost_nothing() {
    let test = "killed_again_and_again";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let root = Root::new();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(50_000), 100_000);
    let container = pod.child(&"ab".repeat(32));
    let args = [
        "--vcpus", "2", "--start", "duty:40", "--thread", "io=1", "--name", "steady",
    ];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    let mut seen = Counters::new();
    let agent = Agent::start(run(&root));
    let first = counters(&agent);
    let used_before = pod.usage_ns();
    not_fallen(&mut seen, first.clone());
    drop(agent);

    let mut dice = Dice::new();
    let is_over = AtomicBool::new(false);
    let burned = thread::scope(|scope| {
        let churning = scope.spawn(|| churn(&mut guest, &is_over));
        let over = Over(&is_over);
        for _ in 0..kills() {
            live_and_die(run(&root), &mut dice, &mut seen);
        }
        drop(over);
        churning.join().expect("it ends by itself")
    });
    let agent = Agent::start(run(&root));
    let last = counters(&agent);
    let used = pod.usage_ns() - used_before;
    not_fallen(&mut seen, last.clone());

    let told = cpu_ns(&last, "steady") - cpu_ns(&first, "steady");
    println!(
        "told {} ms, used {} ms, of it {} ms by threads that ended",
        told / MS,
        used / MS,
        burned / MS
    );
    assert!(burned > 100 * MS, "{burned} ns are no load");
    assert_close("the pod", told, used, (used / 200).max(20 * MS));
    let throttling = pod.throttling();
    let periods = last.iter().find(|(series, _)| {
        series.starts_with("virtlens_cfs_throttled_periods_total{")
            && ["vm=\"steady\"", "scope=\"pod\""]
                .iter()
                .all(|label| series.contains(label))
    });
    let (_, periods) = periods.expect("the pod has a quota");
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let truth = throttling.throttled_periods as f64;
    assert!(
        truth - periods <= 3.0 && truth >= *periods,
        "{periods} of {truth}"
    );
}

/// Ends the churn, also where something panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

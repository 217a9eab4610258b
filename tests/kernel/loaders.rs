//! Each loader makes the same of the same VMs: two agents at the same time, one asked
//! before and after the other.

use std::thread::sleep;
use std::time::Duration;

use virtlens_probe::loader::Loader;
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid};

#[path = "../pins/scraped.rs"]
#[allow(dead_code, reason = "the suite of pins asks for more")]
mod scraped;

use scraped::{Counters, counters};

/// Of each of the VMs.
const VCPUS: u32 = 2;

/// For how long an agent tells the same again: the shortest that it can be told.
const MIN_AGE: Duration = Duration::from_millis(1);

/// By how much the two may differ. Seconds are told to the nanosecond, of which a double
/// has less when they are many. And where programs measure a time by themselves, the one
/// behind the other reads a later clock. KVM counts an exit before its kind: who reads
/// in between has it among the others until another one comes, once for each vCPU.
fn tolerance(series: &str) -> f64 {
    let measured = [
        "throttled_wall_seconds",
        "throttle_duration_seconds_sum",
        "release_seconds",
    ];
    if measured.iter().any(|name| series.contains(name)) {
        1e-3
    } else if series.contains("kvm_exits_total") && series.contains(r#"kind="other""#) {
        f64::from(VCPUS)
    } else {
        1e-6
    }
}

fn agent(loader: Loader) -> Agent {
    let mut command = std::process::Command::new(binary("virtlens"));
    let min_age = format!("{}ms", MIN_AGE.as_millis());
    command.args(["run", "--no-pin", "--min-age", &min_age]);
    command.args(["--listen", "127.0.0.1:0", "--loader", loader.name()]);
    Agent::start(command)
}

/// Of a reading of its own: what was read just before, an agent tells again.
fn read_now(agent: &Agent) -> Counters {
    sleep(2 * MIN_AGE);
    counters(agent)
}

/// What was counted since: of what was not there, all.
fn since(now: &Counters, series: &str, before: &Counters) -> f64 {
    now.get(series).unwrap_or(&0.0) - before.get(series).unwrap_or(&0.0)
}

/// Asks both in turn; then each counter of the one lies between those of the other
/// before and after it.
struct Twins {
    agents: [Agent; 2],
    /// What each had counted as it began: the first of them before the second, and after.
    begin: [Counters; 3],
}

impl Twins {
    fn start() -> Self {
        let [first, second] = Loader::ALL else {
            panic!("this build has both loaders: {:?}", Loader::ALL);
        };
        Self {
            agents: [agent(*first), agent(*second)],
            begin: Default::default(),
        }
    }

    /// From now on what is counted is compared. Of a VM each agent knows a vCPU from when
    /// it has first seen it in its guest, and follows it from then on.
    fn begin(&mut self) {
        // Until each vCPU has been in its guest: what a thread used before is the
        // emulator's, and stays so.
        sleep(Duration::from_millis(500));
        let [one, other] = &self.agents;
        for _ in 0..20 {
            sleep(Duration::from_millis(50));
            read_now(one);
            read_now(other);
        }
        self.begin = [one, other, one].map(read_now);
    }

    /// How many counters had counted something. A thread that ends while a reading is
    /// taken is missing from that one, and from no later one.
    fn compare(&self) -> usize {
        let mut compared = self.compare_once();
        for _ in 0..5 {
            if compared.is_ok() {
                break;
            }
            sleep(Duration::from_millis(300));
            compared = self.compare_once();
        }
        compared.unwrap_or_else(|off| panic!("{off}"))
    }

    fn compare_once(&self) -> Result<usize, String> {
        let [one, other] = &self.agents;
        let [before, between, after] = [one, other, one].map(read_now);
        let mut counted = 0;
        for series in before.keys().chain(between.keys()).chain(after.keys()) {
            let least = since(&before, series, &self.begin[2]);
            let found = since(&between, series, &self.begin[1]);
            let most = since(&after, series, &self.begin[0]);
            let within = tolerance(series);
            if !(least - within..=most + within).contains(&found) {
                return Err(format!("{series}: {found}, not from {least} to {most}"));
            }
            counted += usize::from(found > 0.0);
        }
        Ok(counted)
    }
}

#[test]
fn both_loaders_tell_the_same_at_the_same_time() {
    let test = "both_loaders";
    let needs = [need::root(), need::kvm(), need::bpf(), need::cpu_cgroup()];
    if !need::all(test, needs) {
        return;
    }
    let mut twins = Twins::start();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(30_000), 100_000);
    let vcpus = VCPUS.to_string();
    let args = ["--mem", "64M", "--start", "spin", "--name", "capped"];
    let launch = Minivm::launch().args(["--vcpus", &vcpus]).args(args);
    let _capped = Minivm::start_launch(launch.cgroup(&pod));
    let args = ["--start", "duty:20", "--name", "at-ease"];
    let mut at_ease = Minivm::start(["--vcpus", &vcpus].into_iter().chain(args));
    twins.begin();
    for round in 0..5 {
        at_ease.spawn(4, 5, "passing");
        sleep(Duration::from_millis(300));
        let counted = twins.compare();
        assert!(counted > 20, "{counted} counters counted in round {round}");
        println!("{counted} counters have counted, and each lies between");
    }
}

/// A number of `proc_pid_status(5)`.
fn status(agent: &Agent, name: &str) -> u64 {
    let path = format!("/proc/{}/status", agent.pid());
    let status = std::fs::read_to_string(path).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.map(|line| line.trim().trim_end_matches(" kB"));
    value.expect("it is told").parse().expect("a number")
}

/// aya reads all types of the kernel, some 30 MiB of small pieces, into the heap. What it
/// gave back must not return as huge pages around what lives on: most distributions'
/// kernels make them of any process's memory, some 20 s later.
#[test]
fn neither_loader_leaves_behind_what_loading_took() {
    let test = "loaders_memory";
    if !need::all(test, [need::root(), need::bpf()]) {
        return;
    }
    let twins = Twins::start();
    let agents = &twins.agents;
    for agent in agents {
        read_now(agent);
    }
    let held_kib = agents.each_ref().map(|agent| status(agent, "RssAnon:"));
    println!("{held_kib:?} KiB");
    let [one, other] = held_kib;
    assert!(one.max(other) <= 3 * one.min(other), "{held_kib:?} KiB");
    let may_grow = agents.each_ref().map(|agent| status(agent, "THP_enabled:"));
    assert_eq!(may_grow, [0, 0], "no huge pages");
}

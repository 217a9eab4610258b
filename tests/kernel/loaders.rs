//! Both loaders give the same values for the same VMs. Two agents run at the same time;
//! one is read before and after the other.

use std::thread::sleep;
use std::time::Duration;

use virtlens_probe::loader::Loader;
use virtlens_tests::scraped::{Counters, counters};
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid};

/// Number of vCPUs per VM.
const VCPUS: u32 = 2;

/// Lifetime of a cached reading: the shortest that can be set.
const MIN_AGE: Duration = Duration::from_millis(1);

/// Largest allowed difference between the two agents. Seconds have a resolution of 1 ns,
/// which a double loses for large values. Programs that measure a time themselves read
/// the clock one after the other. KVM counts an exit before its kind: a reading in
/// between counts that exit as another kind until the next exit, once per vCPU.
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

/// Takes a new reading: an agent repeats one that it took just before.
fn read_now(agent: &Agent) -> Counters {
    sleep(2 * MIN_AGE);
    counters(agent)
}

/// Increase of a counter; the whole value if the counter did not exist before.
fn since(now: &Counters, series: &str, before: &Counters) -> f64 {
    now.get(series).unwrap_or(&0.0) - before.get(series).unwrap_or(&0.0)
}

/// Reads both agents alternately. Each counter of the second agent must lie between those
/// of the first before and after it.
struct Twins {
    agents: [Agent; 2],
    /// Counters at the beginning: the first agent's before the second agent's, and after.
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

    /// Starts the comparison. Each agent knows a vCPU from the first time that it saw it
    /// in guest mode, and follows it from then on.
    fn begin(&mut self) {
        // Wait until each vCPU has run guest code: the CPU time of a thread before that
        // stays with the emulator.
        sleep(Duration::from_millis(500));
        let [one, other] = &self.agents;
        for _ in 0..20 {
            sleep(Duration::from_millis(50));
            read_now(one);
            read_now(other);
        }
        self.begin = [one, other, one].map(read_now);
    }

    /// Returns the number of counters that rose. A thread that ends during a reading is
    /// missing from that reading, and from no later one.
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
fn both_loaders_report_the_same_values() {
    let test = "both_loaders_report_the_same_values";
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

/// Returns a number of `proc_pid_status(5)`.
fn status(agent: &Agent, name: &str) -> u64 {
    let path = format!("/proc/{}/status", agent.pid());
    let status = std::fs::read_to_string(path).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.map(|line| line.trim().trim_end_matches(" kB"));
    value.expect("it is listed").parse().expect("a number")
}

/// aya reads all types of the kernel into the heap, some 30 MiB in small pieces. The
/// freed memory must not return as huge pages around the remaining allocations: most
/// distributions' kernels create them in any process's memory, some 20 s later.
#[test]
fn loaders_release_memory_of_loading() {
    let test = "loaders_release_memory_of_loading";
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

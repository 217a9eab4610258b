//! An agent under observation, and a VM that works all the time.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::reader::MS;
use virtlens_tests::root::Root;
use virtlens_tests::scraped::{counters, cpu_ns, samples};
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, unique_pod_uid};

/// How long the agent keeps the final values of a VM.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Time for which the agent reuses a reading.
const MIN_AGE: Duration = Duration::from_millis(1);

/// Tolerance: the kernel adds CPU time to a thread and to its cgroup at the same moment,
/// at the latest at each tick. The error is a few ticks on some CPUs and does not
/// accumulate.
pub(crate) const DRIFT_NS: u64 = 20 * MS;

/// The agent and the sources it is compared with.
pub(crate) struct Watched {
    agent: Agent,
    steady: Minivm,
    // After the VM, because fields are dropped in order: the cgroup must be empty by
    // then.
    _container: TestCgroup,
    pod: TestCgroup,
    _root: Root,
    began: Sums,
}

/// State of the agent at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    /// Series of all VMs.
    pub(crate) series: usize,
    /// Series of all VMs except the steady one.
    pub(crate) foreign_series: usize,
    /// Entries per map.
    pub(crate) entries: BTreeMap<String, f64>,
    pub(crate) resident_bytes: f64,
    pub(crate) open_fds: f64,
    /// Whether any reading has failed so far.
    pub(crate) has_failed: bool,
    /// Difference between the agent's and the cgroup's CPU time of the steady VM, ns.
    pub(crate) drift_ns: i64,
    /// CPU time of the steady VM, ns.
    pub(crate) used_ns: u64,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<_> = self
            .entries
            .iter()
            .map(|(map, fill)| format!("{map} {fill}"))
            .collect();
        write!(
            f,
            "RSS {:.1} MiB, {} fds, {} series of VMs, maps: {}; drift {} us of {} ms",
            self.resident_bytes / 1_048_576.0,
            self.open_fds,
            self.series,
            entries.join(", "),
            self.drift_ns / 1000,
            self.used_ns / MS,
        )
    }
}

impl Watched {
    /// Starts the agent and a VM that works.
    pub(crate) fn start() -> Self {
        let root = Root::with_bpffs();
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        let container = pod.child(&"ab".repeat(32));
        let args = [
            "--vcpus", "2", "--start", "duty:10", "--thread", "io=1", "--name", "soaked",
        ];
        let steady = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
        let mut command = Command::new(binary("virtlens"));
        command.args(["run", "--listen", "127.0.0.1:0"]);
        command
            .arg(format!("--min-age={}ms", MIN_AGE.as_millis()))
            .arg(format!("--linger={}s", LINGER.as_secs()))
            .arg("--root")
            .arg(root.path());
        let agent = Agent::start(command);
        let mut watched = Self {
            agent,
            steady,
            _container: container,
            pod,
            _root: root,
            began: Sums::default(),
        };
        watched.began = watched.sums();
        watched
    }

    /// Starts and ends threads of the steady VM.
    pub(crate) fn work(&mut self) {
        self.steady.spawn(4, 5, "passing");
    }

    /// The present state.
    pub(crate) fn state(&self) -> State {
        let is_ours = |series: &str| {
            ["virtlens_", "process_"]
                .iter()
                .any(|begin| series.starts_with(begin))
        };
        let all = samples(&self.agent, is_ours);
        let map = |series: &str| {
            let name = series.strip_prefix("virtlens_bpf_map_entries{map=\"")?;
            Some(name.trim_end_matches("\"}").to_owned())
        };
        let sums = self.sums();
        let of_vms = || all.keys().filter(|series| series.contains("vm=\""));
        State {
            foreign_series: of_vms()
                .filter(|series| !series.contains("\"soaked\""))
                .count(),
            series: of_vms().count(),
            entries: all
                .iter()
                .filter_map(|(series, fill)| Some((map(series)?, *fill)))
                .collect(),
            resident_bytes: all["process_resident_memory_bytes"],
            open_fds: all["process_open_fds"],
            has_failed: all["virtlens_dropped_total{reason=\"failed_readings\"}"] > 0.0,
            drift_ns: sums.drift_ns(self.began),
            used_ns: sums.truth_ns[1] - self.began.truth_ns[0],
        }
    }

    /// The agent's CPU time of the steady VM, and the cgroup's CPU time before and after
    /// that reading, ns.
    fn sums(&self) -> Sums {
        // The agent reuses a reading for this long after its end, and a reading of many
        // threads begins long before.
        sleep(2 * MIN_AGE);
        let before = self.pod.usage_ns();
        let agent_ns = cpu_ns(&counters(&self.agent), "soaked");
        Sums {
            agent_ns,
            truth_ns: [before, self.pod.usage_ns()],
        }
    }
}

/// A reading of the agent between two readings of the cgroup, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    agent_ns: u64,
    /// CPU time of the cgroup before and after the agent's reading.
    truth_ns: [u64; 2],
}

impl Sums {
    /// Distance of the agent's increase since `before` from the range of the cgroup's,
    /// ns.
    fn drift_ns(self, before: Self) -> i64 {
        let sums = (self.agent_ns - before.agent_ns).cast_signed();
        let low = (self.truth_ns[0] - before.truth_ns[1]).cast_signed();
        let high = (self.truth_ns[1] - before.truth_ns[0]).cast_signed();
        (sums - high).max(0) + (sums - low).min(0)
    }
}

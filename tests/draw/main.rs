//! Data for pictures of the dashboards: VMs with changing loads in named pods, the real
//! agent, and a real Prometheus. Writes each deployed dashboard with the answers to its
//! queries to the file of the argument; `scripts/draw-dashboards` draws it.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use virtlens_tests::grafana::Variables;
use virtlens_tests::process::set_affinity;
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{Agent, Minivm, Qemu, TestCgroup, binary, cgroupfs_pod_path, unique_pod_uid};

/// The dashboards to draw.
const DASHBOARDS: [&str; 2] = ["fleet", "pod"];

/// Slightly longer than the window of the recording rules, 5 minutes.
const RUN: Duration = Duration::from_mins(6);

/// Distance of two points of a curve, and window of a rate, seconds.
const STEP: u64 = 2;
const RATE_INTERVAL: &str = "20s";

/// The VMs as a regular expression, because others may run here.
const VMS: &str = "(web|db|batch)";

/// Length of each of [`TURNS`].
const TURN: Duration = Duration::from_secs(30);

/// Loads of the VMs, one after another: mode of web's vCPUs, whether its iothread is
/// busy, mode of db's vCPUs.
const TURNS: [(&str, bool, &str); 4] = [
    ("duty 10 all", false, "duty 20 all"),
    ("spin all", false, "duty 50 all"),
    ("duty 10 all", true, "duty 30 all"),
    ("halt all", false, "halt all"),
];

/// Memory of db, of which it touches one part more in each turn.
const DB_MIB: usize = 256;

fn main() {
    let file = std::env::args().nth(1).expect("the file to write");
    let (mut vms, pods) = Vms::start();
    let mut command = Command::new(binary("virtlens"));
    command.args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--no-pin",
        "--pcpu-series",
    ]);
    command.arg(format!("--metadata=file:{}", pods.path().display()));
    let agent = Agent::start(command);
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    let rules = ["recording-rules.yaml", "alerting-rules.yaml"].map(|name| folder.join(name));
    let prometheus = Prometheus::scrape(&agent.address, &rules.each_ref().map(|file| &**file));

    let from = now();
    vms.work();
    let to = now();
    let chosen = virtlens_deploy::DASHBOARDS
        .iter()
        .filter(|one| DASHBOARDS.contains(&one.name));
    let dashboards: serde_json::Map<_, _> = chosen
        .map(|one| {
            let answered = answered(&prometheus, one.json(), from, to);
            (one.name.to_owned(), answered)
        })
        .collect();
    let all = json!({"from": from, "to": to, "step": STEP, "dashboards": dashboards});
    std::fs::write(&file, all.to_string()).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("the clock is past 1970").as_secs()
}

/// The VMs and their cgroups: a VM is dropped before its cgroup.
struct Vms {
    web: Minivm,
    db: Minivm,
    _batch: Qemu,
    _pods: [TestCgroup; 3],
}

impl Vms {
    /// Starts the VMs, and returns the list of their pods for the agent.
    ///
    /// web is named like QEMU, so that its threads named "IO" are iothreads. Its vCPUs
    /// are siblings in the guest's topology and share a CPU.
    fn start() -> (Self, NamedTempFile) {
        let uids = [(); 3].map(|()| unique_pod_uid());
        let pods = uids
            .each_ref()
            .map(|uid| TestCgroup::new(&cgroupfs_pod_path(uid)));
        pods[0].set_quota(Some(25_000), 100_000);
        let args = [
            "--name",
            "web",
            "--topology",
            "threads=2",
            "--thread",
            "IO io0=1",
        ];
        let web = Minivm::launch().arg0("qemu-system-x86_64").args(args);
        let web = Minivm::start_launch(web.cgroup(&pods[0]));
        for vcpu in &web.ready.vcpus {
            set_affinity(vcpu.tid, &[0]);
        }
        let mem = format!("{DB_MIB}M");
        let args = ["--name", "db", "--vcpus", "2", "--mem", &mem];
        let db = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pods[1]));
        let args = [
            "-name",
            "guest=batch,debug-threads=on",
            "-object",
            "iothread,id=io0",
        ];
        let batch = Qemu::start_launch(1, Qemu::launch().args(args).cgroup(&pods[2]));
        let vms = Self {
            web,
            db,
            _batch: batch,
            _pods: pods,
        };
        (vms, pod_list(&uids))
    }

    /// Repeats the turns until the time is over.
    fn work(&mut self) {
        let end = Instant::now() + RUN;
        for turn in 0.. {
            if Instant::now() > end {
                return;
            }
            let part = turn % TURNS.len();
            let (web, is_io_busy, db) = TURNS[part];
            self.web.command(web);
            self.db.command(db);
            if part == 0 {
                self.db.command(&format!("madvise dontneed 0 {DB_MIB}M 1"));
            }
            let mib = DB_MIB / TURNS.len();
            self.db.command(&format!("touch {}M {mib}M", part * mib));
            let end = Instant::now() + TURN;
            while Instant::now() < end {
                if is_io_busy {
                    self.web.burn_threads("0", 200);
                } else {
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }
}

/// Lists the pods in the format of `kubectl get pods -A -o json`.
fn pod_list(uids: &[String; 3]) -> NamedTempFile {
    let named = [("shop", "web-0"), ("shop", "db-0"), ("jobs", "batch-7")];
    let items: Vec<_> = uids
        .iter()
        .zip(named)
        .map(|(uid, (namespace, name))| {
            json!({"metadata": {"uid": uid, "namespace": namespace, "name": name},
                   "spec": {"runtimeClassName": "kata"}})
        })
        .collect();
    let file = NamedTempFile::new().expect("there is room for a file");
    let text = json!({"items": items}).to_string();
    std::fs::write(file.path(), text).expect("it can be written");
    file
}

/// The dashboard with Prometheus's result as `answer` in each of its targets.
fn answered(prometheus: &Prometheus, mut dashboard: Value, from: u64, to: u64) -> Value {
    let variables = Variables::of(prometheus, &dashboard, |name, _, all| {
        if name == "vm" { VMS } else { all }.to_owned()
    });
    let [from, to, step] = [from, to, STEP].map(|number| number.to_string());
    let panels = dashboard["panels"].as_array_mut().into_iter().flatten();
    let targets = panels.filter_map(|panel| panel.get_mut("targets")?.as_array_mut());
    for target in targets.flatten() {
        let query = target["expr"].as_str().expect("each target has a query");
        let query = variables.put_into(query, RATE_INTERVAL);
        let mut answer = if target["instant"] == true {
            prometheus.api("query", &[("query", &query), ("time", &to)])
        } else {
            let range = [
                ("query", &*query),
                ("start", &from),
                ("end", &to),
                ("step", &step),
            ];
            prometheus.api("query_range", &range)
        };
        target["answer"] = answer["result"].take();
    }
    dashboard
}

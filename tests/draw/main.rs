//! Data for pictures of the dashboards, inside a machine of tests/vm: pods with changing
//! loads, the real agent, and a real Prometheus. Prints each deployed dashboard with the
//! answers to its queries, compressed and as text, because the machine cannot write to the
//! host's files; `scripts/draw-dashboards` collects and draws it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use virtlens_deploy::tokens::PodLabels;
use virtlens_tests::grafana::Variables;
use virtlens_tests::process::set_affinity;
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, unique_pod_uid};
use virtlens_vmtest::scenario::Scenario;

/// The dashboards to draw.
const DASHBOARDS: [&str; 2] = ["fleet", "pod"];

/// Slightly longer than the window of the recording rules, 5 minutes.
const RUN: Duration = Duration::from_mins(6);

/// Distance of two points of a curve, and window of a rate, seconds.
const STEP: u64 = 2;
const RATE_INTERVAL: &str = "20s";

/// CPU time that the pod web-0 may use in 100 ms, µs: below the use of all its loads.
const QUOTA_US: u32 = 125_000;

/// Length of each of [`TURNS`].
const TURN: Duration = Duration::from_secs(30);

/// Loads, one after another: those of the rig's pod `named`, and the mode of db's vCPUs.
const TURNS: [(&[&str], &str); 4] = [
    (&["virtiofs"], "duty 20 all"),
    (&["cpu", "vhost", "virtiofs"], "duty 50 all"),
    (&["disk", "vhost"], "duty 30 all"),
    (&["memory"], "halt all"),
];

/// Memory of db, of which it touches one part more in each turn.
const DB_MIB: usize = 256;

fn main() {
    let scenario = Scenario::read().expect("this program runs in tests/vm");
    let (mut vms, pods) = Vms::start(&scenario);
    let mut command = Command::new(binary("virtlens"));
    command.args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--no-pin",
        "--metrics",
        "full,+*",
    ]);
    command.arg(format!("--metadata=file:{}", pods.path().display()));
    let agent = Agent::start(command);
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    let rules = ["recording-rules.yaml", "alerting-rules.yaml"].map(|name| folder.join(name));
    let prometheus = Prometheus::scrape(&agent.address, &rules.each_ref().map(|file| &**file));

    let from = now();
    vms.work(&scenario);
    let to = now();
    let chosen = virtlens_deploy::DASHBOARDS
        .iter()
        .filter(|one| DASHBOARDS.contains(&one.name));
    let dashboards: serde_json::Map<_, _> = chosen
        .map(|one| {
            let answered = answered(&prometheus, one.json(PodLabels::Kept), from, to);
            (one.name.to_owned(), answered)
        })
        .collect();
    let all = json!({"from": from, "to": to, "step": STEP, "dashboards": dashboards});
    print(&all.to_string());
}

/// Prints a text as lines that a console passes unchanged.
fn print(text: &str) {
    let mut pack = Command::new("sh");
    let pack = pack.args(["-c", "gzip -9 | base64 -w 200 | sed 's/^/answers /'"]);
    let mut pack = pack.stdin(Stdio::piped()).spawn().expect("a shell starts");
    let mut stdin = pack.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("gzip reads");
    drop(stdin);
    let ended = pack.wait().expect("it is our child");
    assert!(ended.success(), "{ended}");
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("the clock is past 1970").as_secs()
}

/// The VMs beside those of the rig, and their cgroups: a VM is dropped before its cgroup.
struct Vms {
    db: Minivm,
    _batch: Minivm,
    _pods: [TestCgroup; 2],
}

impl Vms {
    /// Starts the VMs, and returns the list of all pods for the agent.
    fn start(scenario: &Scenario) -> (Self, NamedTempFile) {
        let uids = [(); 2].map(|()| unique_pod_uid());
        let pods = uids
            .each_ref()
            .map(|uid| TestCgroup::new(&cgroupfs_pod_path(uid)));
        let mem = format!("{DB_MIB}M");
        let args = ["--name", "db", "--vcpus", "2", "--mem", &mem];
        let db = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pods[0]));
        let args = ["--name", "batch", "--vcpus", "2", "--topology", "threads=2"];
        let batch = Minivm::launch().args(args).args(["--start", "duty:60"]);
        let batch = Minivm::start_launch(batch.cgroup(&pods[1]));
        // Siblings in the guest, on different cores of the host.
        for (vcpu, pcpu) in batch.ready.vcpus.iter().zip([0, 2]) {
            set_affinity(vcpu.tid, &[pcpu]);
        }
        let [db_uid, batch_uid] = &uids;
        let list = pod_list([
            (&scenario.pods["named"].uid, "shop", "web-0"),
            (&scenario.pods["plain"].uid, "shop", "cache-0"),
            (db_uid, "shop", "db-0"),
            (batch_uid, "jobs", "batch-7"),
        ]);
        let vms = Self {
            db,
            _batch: batch,
            _pods: pods,
        };
        (vms, list)
    }

    /// Repeats the turns until the time is over.
    fn work(&mut self, scenario: &Scenario) {
        let web = &scenario.pods["named"];
        let limit = scenario.cgroup_root.join(&web.pod_cgroup).join("cpu.max");
        let set = |text: &str| fs::write(&limit, text).expect("the limit can be set");
        let usual = fs::read_to_string(&limit).expect("the pod has a limit");
        let end = Instant::now() + RUN;
        for turn in 0.. {
            if Instant::now() > end {
                return;
            }
            let part = turn % TURNS.len();
            let (loads, db) = TURNS[part];
            self.db.command(db);
            if part == 0 {
                let all = format!("madvise dontneed 0 {DB_MIB}M 1");
                self.db.command(&all);
            }
            let mib = DB_MIB / TURNS.len();
            self.db.command(&format!("touch {}M {mib}M", part * mib));
            for load in loads {
                scenario.start(load).expect("the load starts");
            }
            set(&format!("{QUOTA_US} 100000"));
            sleep(TURN);
            // A throttled guest answers too slowly.
            set(&usual);
            for load in loads {
                scenario.stop(load).expect("the load stops");
            }
        }
    }
}

/// Lists pods by uid, namespace and name in the format of `kubectl get pods -A -o json`.
fn pod_list<const N: usize>(pods: [(&String, &str, &str); N]) -> NamedTempFile {
    let items = pods.map(|(uid, namespace, name)| {
        json!({"metadata": {"uid": uid, "namespace": namespace, "name": name},
               "spec": {"runtimeClassName": "kata"}})
    });
    let file = NamedTempFile::new().expect("there is room for a file");
    let text = json!({"items": items.as_slice()}).to_string();
    fs::write(file.path(), text).expect("it can be written");
    file
}

/// The dashboard with Prometheus's result as `answer` in each of its targets.
fn answered(prometheus: &Prometheus, mut dashboard: Value, from: u64, to: u64) -> Value {
    let variables = Variables::of(prometheus, &dashboard, |_, _, all| all.to_owned());
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

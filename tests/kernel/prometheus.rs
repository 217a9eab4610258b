//! A real Prometheus scrapes the real agent with real VMs: the series that rules and
//! dashboards query exist.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use virtlens_tests::mixin::{self, Verdict};
use virtlens_tests::process::set_affinity;
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{
    Agent, Launch, Minivm, Qemu, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid,
};

/// The agent judges every 10 s, and rates need a few scrapes after that.
const PATIENCE: Duration = Duration::from_secs(90);

/// The names of the VMs.
const VMS: [&str; 3] = ["busy", "calm", "capped"];

/// Id of the capped pod's sandbox.
const SANDBOX: &str = "abababababababababababababababababababababababababababababababab";

/// Features that this host lacks, with the reason.
fn lacks(pod: &TestCgroup) -> Vec<(&'static str, &'static str)> {
    let mut lacks = Vec::new();
    if pod.is_v1() {
        lacks.push(("cgroup_v2", "the cgroups of this host are v1"));
    }
    let smt = fs::read_to_string("/sys/devices/system/cpu/smt/active");
    if smt.is_ok_and(|text| text.trim() == "0") {
        lacks.push(("smt", "this host has none, or it is off"));
    }
    lacks
}

/// A pod with a CPU and a memory limit. Its vCPUs are siblings in the guest's topology
/// and share one CPU.
fn capped(pod: &TestCgroup, sandbox: &TestCgroup) -> Minivm {
    pod.set_quota(Some(40_000), 100_000);
    if !pod.is_v1() {
        pod.enable(&["memory"]);
        pod.set("memory.max", "1G");
    }
    let args = [
        "--start",
        "spin",
        "--topology",
        "threads=2",
        "--name",
        "capped",
    ];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(sandbox));
    for vcpu in &guest.ready.vcpus {
        set_affinity(vcpu.tid, &[0]);
    }
    guest
}

/// A guest that can report free memory. Its vCPUs are siblings and are pinned to CPUs
/// that are siblings on many hosts.
fn calm(pod: &TestCgroup) -> Minivm {
    let args = [
        "--start",
        "duty:20",
        "--topology",
        "threads=2",
        "--mem",
        "64M",
    ];
    let launch = Minivm::launch().args(args).args(["--name", "calm"]);
    let guest = Minivm::start_launch(launch.cgroup(pod));
    for vcpu in &guest.ready.vcpus {
        set_affinity(vcpu.tid, &[vcpu.index as usize]);
    }
    guest
}

/// A QEMU with an I/O thread.
fn busy(pod: &TestCgroup) -> Qemu {
    let name = ["-name", "guest=busy,debug-threads=on"];
    let io = ["-object", "iothread,id=io0"];
    Qemu::start_launch(1, Qemu::launch().args(name).args(io).cgroup(pod))
}

/// The pods of [`VMS`] in the format of `kubectl get pods -o json`.
fn names(uids: &[String; 3]) -> String {
    let pods = VMS.iter().zip(uids).map(|(name, uid)| {
        let metadata = serde_json::json!({"uid": uid, "namespace": "shop", "name": name});
        serde_json::json!({"metadata": metadata, "spec": {}})
    });
    serde_json::json!({"items": pods.collect::<Vec<_>>()}).to_string()
}

/// The rules and dashboards are complete if the host has all the features they use.
#[test]
fn all_queries_have_data_on_this_host() {
    let test = "all_queries_have_data_on_this_host";
    let host = [need::root(), need::kvm(), need::bpf(), need::cpu_cgroup()];
    let programs = [need::qemu(), need::prometheus()];
    if !need::all(test, host) || !need::all(test, programs) {
        return;
    }
    let uids = VMS.map(|_| unique_pod_uid());
    let pods = uids
        .each_ref()
        .map(|uid| TestCgroup::new(&cgroupfs_pod_path(uid)));
    let sandbox = pods[2].child(SANDBOX);
    let overhead = TestCgroup::new(&format!("kata_overhead/{SANDBOX}"));
    let _busy = busy(&pods[0]);
    let mut calm = calm(&pods[1]);
    let _capped = capped(&pods[2], &sandbox);
    let mut outside = Launch::new("sleep").arg("300").cgroup(&overhead).spawn();

    let folder = tempfile::tempdir().expect("there is room for a folder");
    let list = folder.path().join("pods.json");
    fs::write(&list, names(&uids)).expect("a file can be written");
    let mut command = Command::new(binary("virtlens"));
    command.args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--no-pin",
        "--metrics",
        "full,+*",
    ]);
    command.arg(format!("--metadata=file:{}", list.display()));
    let agent = Agent::start(command);
    let rules = ["recording-rules.yaml", "alerting-rules.yaml"];
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    let rules = rules.map(|name| folder.join(name));
    let prometheus = Prometheus::scrape(&agent.address, &rules.each_ref().map(|file| &**file));

    let verdict = verdict(&prometheus, &lacks(&pods[2]), &mut calm);
    outside.kill().expect("it is our child");
    outside.wait().expect("it is our child");
    print(&verdict);
    assert!(verdict.failures.is_empty(), "{:#?}", verdict.failures);
    assert_rules_are_well(&prometheus);
}

/// Evaluates the queries while a guest reports free memory and takes it again.
fn verdict(prometheus: &Prometheus, lacks: &[(&str, &str)], guest: &mut Minivm) -> Verdict {
    let is_asked = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            while is_asked.load(Ordering::Relaxed) {
                guest.command("touch 0 32M");
                guest.command("madvise dontneed 0 4M 8");
                thread::sleep(Duration::from_secs(1));
            }
        });
        let _asked = Asked(&is_asked);
        mixin::judge(prometheus, &VMS, lacks, PATIENCE)
    })
}

/// Ends a background loop on drop, also on a panic.
struct Asked<'a>(&'a AtomicBool);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Prints the queries that this host cannot show.
fn print(verdict: &Verdict) {
    for ((need, why), queries) in &verdict.excused {
        let queries: Vec<_> = queries.iter().map(String::as_str).collect();
        let what = format!("queries without {need}");
        need::left_out(&what, &format!("{why}: {}", queries.join("; ")));
    }
}

fn assert_rules_are_well(prometheus: &Prometheus) {
    let answer = prometheus.api("rules", &[]);
    let groups = answer["groups"].as_array().expect("groups");
    let mut rules = 0;
    for rule in groups
        .iter()
        .filter_map(|group| group["rules"].as_array())
        .flatten()
    {
        assert_eq!(rule["health"], "ok", "{rule}");
        rules += 1;
    }
    let alerts = virtlens_deploy::rules::alerts().count();
    assert_eq!(rules, alerts + virtlens_deploy::rules::recordings().count());
}

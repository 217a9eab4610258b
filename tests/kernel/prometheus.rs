//! A real Prometheus scrapes the real agent, with real VMs: what rules and
//! dashboards ask for is there.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use virtlens_tests::mixin::{self, Verdict};
use virtlens_tests::process::set_affinity;
use virtlens_tests::prometheus::Prometheus;
use virtlens_tests::{
    Agent, Minivm, Qemu, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid,
};

use crate::reader;

/// The agent judges every 10 s, and rates need a few scrapes after that.
const PATIENCE: Duration = Duration::from_secs(90);

/// The names of the VMs.
const VMS: [&str; 3] = ["busy", "calm", "capped"];

/// What this host and the VMs of this test have not.
fn lacks(pod: &TestCgroup) -> Vec<(&'static str, &'static str)> {
    let mut lacks = vec![
        ("memory_limit", "the pod of this test has none"),
        ("pod_names", "this agent belongs to no cluster"),
        ("split_pod", "a minivm has no helpers outside of its pod"),
    ];
    if pod.is_v1() {
        lacks.push(("cgroup_v2", "the cgroups of this host are v1"));
    }
    let smt = std::fs::read_to_string("/sys/devices/system/cpu/smt/active");
    if smt.is_ok_and(|text| text.trim() == "0") {
        lacks.push(("smt", "this host has none, or it is off"));
    }
    lacks
}

/// A pod that is capped and whose vCPUs, siblings to the guest, share one CPU.
fn capped(pod: &TestCgroup) -> Minivm {
    pod.set_quota(Some(40_000), 100_000);
    let args = [
        "--start",
        "spin",
        "--topology",
        "threads=2",
        "--name",
        "capped",
    ];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(pod));
    for vcpu in &guest.ready.vcpus {
        set_affinity(vcpu.tid, &[0]);
    }
    guest
}

#[test]
fn rules_and_dashboards_show_this_host() {
    let test = "rules_and_dashboards_show_this_host";
    let needs = [need::cpu_cgroup(), need::qemu(), need::prometheus()];
    if !reader::ready(test) || !need::all(test, needs) {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let _capped = capped(&pod);
    let _calm = Minivm::start(["--start", "duty:20", "--name", "calm"]);
    let names = ["-name", "guest=busy,debug-threads=on"];
    let io = ["-object", "iothread,id=io0"];
    let _busy = Qemu::start(1, [names, io].concat());

    let mut command = Command::new(binary("virtlens"));
    command.args(["run", "--listen", "127.0.0.1:0", "--pcpu-series"]);
    let agent = Agent::start(command);
    let rules = ["recording-rules.yaml", "alerting-rules.yaml"];
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    let rules = rules.map(|name| folder.join(name));
    let prometheus = Prometheus::scrape(&agent.address, &rules.each_ref().map(|file| &**file));

    let verdict = settled(&prometheus, &lacks(&pod));
    tell(&verdict);
    assert!(verdict.failures.is_empty(), "{:#?}", verdict.failures);
    assert_rules_are_well(&prometheus);
}

/// The verdict once nothing fails, or the last one.
fn settled(prometheus: &Prometheus, lacks: &[(&str, &str)]) -> Verdict {
    let end = Instant::now() + PATIENCE;
    loop {
        let verdict = mixin::judge(prometheus, &VMS, lacks);
        if verdict.failures.is_empty() || Instant::now() > end {
            return verdict;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Says which queries this host cannot show, past the test harness, which would
/// keep it from a passing test's reader; `make test` repeats it at its end.
fn tell(verdict: &Verdict) {
    for ((need, why), queries) in &verdict.excused {
        let queries: Vec<_> = queries.iter().map(String::as_str).collect();
        let line = format!(
            "NOT RUN: queries without {need}: {why}: {}\n",
            queries.join("; ")
        );
        let written = std::io::stderr().lock().write_all(line.as_bytes());
        written.expect("stderr can be written");
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
    assert_eq!(rules, alerts + virtlens_deploy::rules::RECORDINGS.len());
}

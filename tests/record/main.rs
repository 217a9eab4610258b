//! Records a terminal session on a throttled pod of tests/vm, and draws how the roles of
//! the pod use its CPU limit.
//!
//! ```text
//! pod under load ─► terminal: top, doctor, trace ─► session.cast
//!               └─► collector ────────────────────► usage.json ─► draw ─► SVG
//! ```
//!
//! Without arguments it runs inside the machine. The machine cannot write to the host's
//! files, so each line of output is the name of a file and one line of its content;
//! `scripts/record-terminal` collects them. `draw FILE` prints the picture of a
//! `usage.json`.

mod picture;
mod usage;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use serde_json::json;
use virtlens_tests::terminal::{Key, Recording};
use virtlens_vmtest::scenario::{Pod, Scenario};

use usage::Usage;

/// CPU time that the pod may use, µs in 100 ms: the limit of the doctor's suite, below the
/// use of two vCPUs, vhost and virtiofsd.
const QUOTA_US: u32 = 125_000;

/// The loads, in the order in which they are started.
const LOADS: [&str; 3] = ["vhost", "virtiofs", "cpu"];

/// Names of the rig's pods, as Kubernetes would report them.
const NAMES: [(&str, &str); 2] = [("named", "web-0"), ("plain", "db-0")];

/// Namespace and name of the pod under load.
const POD: &str = "shop/web-0";

/// `top` shows all VMs, then the selected one, then ends.
const KEYS_OF_TOP: [Key; 2] = [
    Key {
        text: "\r",
        after: Duration::from_secs(7),
    },
    Key {
        text: "q",
        after: Duration::from_secs(9),
    },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => record(),
        ["draw", file] => {
            let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            let usage = serde_json::from_str(&text).expect("the file of a recording");
            print!("{}", picture::svg(&usage));
        }
        _ => panic!("usage: record [draw FILE]"),
    }
}

/// Records the session and the usage inside a machine of tests/vm, and prints both.
fn record() {
    let scenario = Scenario::read().expect("this program runs in tests/vm");
    let folder = tempfile::tempdir().expect("/tmp is writable");
    let pods = folder.path().join("pods.json");
    fs::write(&pods, pod_list(&scenario)).expect("/tmp is writable");
    let pods = format!("file:{}", pods.display());
    let mut recording = Recording::new(folder.path(), vec![("VIRTLENS_METADATA", pods)]);
    let sessions: [(&str, &[Key]); 3] = [
        ("virtlens top", &KEYS_OF_TOP),
        ("virtlens doctor", &[]),
        (&format!("virtlens trace {POD} --for 5s"), &[]),
    ];
    for (command, keys) in sessions {
        under_load(&scenario, |_| recording.run(command, keys));
    }
    for line in recording.lines() {
        println!("session.cast {line}");
    }
    let usage = under_load(&scenario, |pod| Usage::measure(POD, pod));
    let usage = serde_json::to_string(&usage).expect("numbers and names");
    println!("usage.json {usage}");
}

/// Calls `work` while all loads run and the limit throttles the pod.
///
/// The rig stops a load after a minute, so each command gets its own load. The usual limit
/// is restored before the loads stop: a throttled guest answers too slowly.
fn under_load<T>(scenario: &Scenario, work: impl FnOnce(&Pod) -> T) -> T {
    let pod = &scenario.pods["named"];
    for load in LOADS {
        scenario.start(load).expect("the load starts");
    }
    let limit = scenario.cgroup_root.join(&pod.pod_cgroup).join("cpu.max");
    let usual = fs::read_to_string(&limit).expect("the pod has a limit");
    set(&limit, &format!("{QUOTA_US} 100000"));
    sleep(Duration::from_secs(1));
    let result = work(pod);
    set(&limit, &usual);
    for load in LOADS {
        scenario.stop(load).expect("the load stops");
    }
    result
}

fn set(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// The rig's pods in the format of `kubectl get pods -A -o json`.
fn pod_list(scenario: &Scenario) -> String {
    let items = NAMES.map(|(pod, name)| {
        let uid = &scenario.pods[pod].uid;
        json!({"metadata": {"uid": uid, "namespace": "shop", "name": name},
               "spec": {"runtimeClassName": "kata"}})
    });
    json!({ "items": items }).to_string()
}

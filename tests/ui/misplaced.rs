//! A recording of a node with each kind of mismatch, made inside the machine `smt` of tests/vm:
//! pinned minivms in pods, one of them with a CPU limit and changing loads, and the real agent.
//! The argument is the length of the recording in seconds.
//!
//! The machine cannot write to the host's files, so the directory of the recording is printed
//! as text; `scripts/record-misplaced` collects it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use virtlens_tests::process::set_affinity;
use virtlens_tests::seats::pinned_launch;
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, unique_pod_uid};

/// A VM that is pinned to CPUs of the machine, which are in pairs of siblings, four to a cache,
/// and eight and four to a node.
struct Pinned {
    pod: &'static str,
    topology: &'static str,
    pcpus: &'static [usize],
}

/// One VM for each kind of mismatch that pins cause, and one without any. No two of them share a
/// CPU.
const PINNED: [Pinned; 6] = [
    Pinned {
        pod: "cache-0",
        topology: "threads=2",
        pcpus: &[0, 2],
    },
    Pinned {
        pod: "search-0",
        topology: "cores=2",
        pcpus: &[6, 7],
    },
    Pinned {
        pod: "queue-0",
        topology: "cores=2",
        pcpus: &[10, 10],
    },
    Pinned {
        pod: "db-0",
        topology: "cores=2",
        pcpus: &[1, 9],
    },
    Pinned {
        pod: "db-1",
        topology: "cores=2",
        pcpus: &[3, 4],
    },
    Pinned {
        pod: "mail-0",
        topology: "cores=1",
        pcpus: &[11],
    },
];

/// Length of each of the loads of the pod with a limit.
const TURN: Duration = Duration::from_secs(20);

/// Those loads, one after another: CPU time of a vCPU and of the thread for disk I/O in ms, again
/// and again, and whether the network device is busy. The vCPU works in user space: two CPUs
/// emulate the machine, which hangs sometimes if its guests spin.
const TURNS: [(u32, u32, bool); 3] = [(50, 20, false), (150, 60, true), (30, 90, false)];

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(300);

const PERIOD_US: u64 = 100_000;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.expect("usage: misplaced SECONDS"));
    let folder = tempfile::tempdir().expect("/tmp is writable");
    let mut pods = Pods::default();
    let mut vms: Vec<Minivm> = PINNED
        .iter()
        .map(|one| start_pinned(&mut pods, one))
        .collect();
    vms.push(start_with_helper(&mut pods));
    vms.push(start_with_remote_memory(&mut pods));
    let mut web = start_limited(&mut pods);
    println!("{} VMs run", vms.len() + 1);
    let list = folder.path().join("pods.json");
    fs::write(&list, json!({"items": pods.items}).to_string()).expect("/tmp is writable");

    let recording = folder.path().join("recording");
    let mut command = Command::new(binary("virtlens"));
    command
        .args(["run", "--listen", "127.0.0.1:0", "--no-pin"])
        .args(["--node-name", "node-1", "--record-interval", "1s"])
        .arg("--record")
        .arg(&recording)
        .arg(format!("--metadata=file:{}", list.display()));
    let mut agent = Agent::start(command);
    println!("the agent runs");
    let end = Instant::now() + length;
    for (vcpu_ms, disk_ms, is_flooded) in TURNS.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        println!("load of web-0: {vcpu_ms} {disk_ms} {is_flooded}");
        if *is_flooded {
            web.command("flood on");
        }
        let turn = end.min(Instant::now() + TURN);
        while Instant::now() < turn {
            web.burn_in_user_space(0, *vcpu_ms);
            web.burn_threads("0", *disk_ms);
            sleep(PAUSE);
        }
        if *is_flooded {
            web.command("flood off");
        }
    }
    println!("the load ends");
    let (code, log) = agent.stop();
    assert_eq!(code, Some(0), "{log:#?}");
    print(&recording);
}

/// Prints a directory as lines that a console passes unchanged.
fn print(folder: &Path) {
    let text = "tar -C \"$0\" -cz . | base64 -w 200 | sed 's/^/recording /'";
    let ended = Command::new("sh").args(["-c", text]).arg(folder).status();
    assert!(ended.expect("a shell starts").success());
}

/// Cgroups of pods, and their entries in the format of `kubectl get pods -A -o json`.
#[derive(Default)]
struct Pods {
    items: Vec<Value>,
    cgroups: Vec<TestCgroup>,
}

impl Pods {
    fn add(&mut self, name: &str) -> &TestCgroup {
        let uid = unique_pod_uid();
        self.cgroups.push(TestCgroup::new(&cgroupfs_pod_path(&uid)));
        self.items.push(json!({
            "metadata": {"uid": uid, "namespace": "shop", "name": name},
            "spec": {"runtimeClassName": "kata"},
        }));
        self.cgroups.last().expect("it was added")
    }
}

fn start_pinned(pods: &mut Pods, one: &Pinned) -> Minivm {
    let launch = Minivm::launch().args(["--name", one.pod, "--topology", one.topology]);
    pinned_launch(launch.cgroup(pods.add(one.pod)), one.pcpus)
}

/// Its thread for disk I/O may only run on the CPU of its vCPU and that CPU's sibling.
fn start_with_helper(pods: &mut Pods) -> Minivm {
    let args = ["--name", "files-0", "--vcpus", "1", "--thread", "IO io0=1"];
    let vm = pinned_launch(
        Minivm::launch().args(args).cgroup(pods.add("files-0")),
        &[5],
    );
    set_affinity(vm.ready.threads[0].tid, &[4, 5]);
    vm
}

/// Its vCPU runs on node 1, and its memory may only come from node 0.
fn start_with_remote_memory(pods: &mut Pods) -> Minivm {
    let cgroup = pods.add("model-0");
    cgroup.enable(&["cpuset", "memory"]);
    cgroup.set("cpuset.mems", "0");
    let args = ["--name", "model-0", "--vcpus", "1", "--mem", "64M"];
    let mut vm = pinned_launch(Minivm::launch().args(args).cgroup(cgroup), &[8]);
    vm.command(&format!("touch 0 {}", 64 << 20));
    vm
}

/// Its vCPUs may run everywhere, and it has a CPU limit.
fn start_limited(pods: &mut Pods) -> Minivm {
    let cgroup = pods.add("web-0");
    cgroup.set_quota(Some(PERIOD_US / 4), PERIOD_US);
    let args = ["--name", "web-0", "--topology", "sockets=2", "--mem", "32M"];
    let devices = ["--vhost-net", "tap-web", "--thread", "IO io0=1"];
    let launch = Minivm::launch().args(args).args(devices);
    Minivm::start_launch(launch.cgroup(cgroup))
}

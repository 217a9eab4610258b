//! An agent with VMs for the browser.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid};

use crate::browser;

/// Name of a VM that a tenant could choose.
pub(crate) const HOSTILE: &str = "<img src=x onerror=document.title=1>&amp;\"'";
/// Name of a VM with two busy vCPUs.
pub(crate) const BUSY: &str = "ui-busy";
/// Name of a VM with a busy vCPU in a pod with a limit of a quarter of a core.
pub(crate) const LIMITED: &str = "ui-limited";

const PERIOD_US: u64 = 100_000;

/// Whether the tests can run here.
pub(crate) fn is_possible(test: &str) -> bool {
    let needs = [
        need::root(),
        need::kvm(),
        need::bpf(),
        need::cpu_cgroup(),
        browser::browser(),
    ];
    need::all(test, needs)
}

/// VMs that live as long as this.
pub(crate) struct Vms {
    _vms: Vec<Minivm>,
    _pod: TestCgroup,
}

impl Vms {
    pub(crate) fn start() -> Self {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        pod.set_quota(Some(PERIOD_US / 4), PERIOD_US);
        let topology = "sockets=1,cores=1,threads=2";
        let busy = ["--name", BUSY, "--start", "duty:20", "--topology", topology];
        let limited = Minivm::launch().args(["--name", LIMITED, "--start", "spin"]);
        let vms = vec![
            Minivm::start(busy),
            Minivm::start(["--name", HOSTILE, "--start", "tick:20"]),
            Minivm::start_launch(limited.cgroup(&pod)),
        ];
        Self {
            _vms: vms,
            _pod: pod,
        }
    }
}

/// The agent with further options.
pub(crate) fn agent(listen: &str, options: &[&str]) -> Agent {
    let mut command = Command::new(binary("virtlens"));
    command
        .args(["run", "--listen", listen, "--no-pin"])
        .args(options);
    Agent::start(command)
}

/// An agent that records once a second.
pub(crate) fn recording_agent(folder: &Path) -> Agent {
    let folder = folder.to_str().expect("text");
    agent(
        "127.0.0.1:0",
        &["--record-interval", "1s", "--record", folder],
    )
}

/// The address of a view of an agent's page.
pub(crate) fn url(agent: &Agent, view: &str) -> String {
    format!("http://{}/#/{view}", agent.address)
}

/// A running `virtlens ui`; killed on drop.
pub(crate) struct Page {
    child: Child,
    pub(crate) url: String,
    _stdout: BufReader<ChildStdout>,
}

impl Page {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut command = Command::new(binary("virtlens"));
        let command = command.args(["ui", "--no-open"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut url = String::new();
        stdout.read_line(&mut url).expect("text");
        Self {
            child,
            url: url.trim().to_owned(),
            _stdout: stdout,
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

//! The image, run by containerd and runc as a kubelet would run it: with the security
//! context, mounts and pid namespace of the chart's `DaemonSet`, and containerd's default
//! seccomp profile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use virtlens_tests::{Bpffs, Launch, Minivm, eventually, http, need};

use crate::container_pod::{added, apply, names, pod};

const IMAGE: &str = concat!("docker.io/library/virtlens:", env!("CARGO_PKG_VERSION"));
/// Capabilities of the container and the kernel's number of each, which is its bit.
const CAPABILITIES: [(&str, u32); 3] = [("SYS_PTRACE", 19), ("PERFMON", 38), ("BPF", 39)];

/// A private containerd; it and its containers end on drop.
struct Containerd {
    dir: TempDir,
    child: Child,
}

impl Containerd {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("there is room for a folder");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("socket"),
            path("ttrpc")
        );
        fs::write(path("config.toml"), config).expect("a file can be written");
        let log = fs::File::create(path("log")).expect("a file can be made");
        let child = Command::new("containerd")
            .args(["--config", &path("config.toml")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd is in PATH");
        let this = Self { dir, child };
        eventually("containerd answers", || {
            let output = this.ctr(&["version"]).output();
            output
                .expect("ctr is in PATH")
                .status
                .success()
                .then_some(())
        });
        this
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn ctr(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ctr");
        command.args(["--address", &self.path("socket")]).args(args);
        command.stdin(Stdio::null());
        command
    }

    fn ask(&self, args: &[&str]) -> String {
        let output = self.ctr(args).output().expect("ctr is in PATH");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("ctr writes UTF-8")
    }

    /// The spec that containerd generates for the image, including its default seccomp
    /// profile for these capabilities.
    fn spec(&self, capabilities: &[String]) -> Value {
        let mut args = vec!["containers", "create", "--seccomp"];
        for name in capabilities {
            args.extend(["--cap-add", name]);
        }
        args.extend([IMAGE, "template"]);
        self.ask(&args);
        let info = self.ask(&["containers", "info", "template"]);
        let mut info: Value = serde_json::from_str(&info).expect("JSON");
        info["Spec"].take()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // None of these may exist any more.
        drop(
            self.ctr(&["tasks", "kill", "--signal", "KILL", "agent"])
                .output(),
        );
        drop(self.ctr(&["tasks", "delete", "--force", "agent"]).output());
        drop(
            self.ctr(&["images", "unmount", &self.path("rootfs")])
                .output(),
        );
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        drop(self.child.wait());
    }
}

fn get(port: u16, path: &str) -> Option<String> {
    http::ask(([127, 0, 0, 1], port).into(), "GET", path, "").ok()
}

fn image() -> Result<PathBuf, need::Missing> {
    let path = PathBuf::from(std::env::var_os("VIRTLENS_IMAGE").unwrap_or_default());
    need::that("image", path.is_file(), "VIRTLENS_IMAGE names no archive")?;
    Ok(path)
}

/// The agent in a container of its image, with the chart's settings; and a VM of the host.
struct Agent {
    containerd: Containerd,
    port: u16,
    _bpffs: Bpffs,
    _folder: TempDir,
    _guest: Minivm,
}

impl Agent {
    /// Starts it, under containerd's default seccomp profile or another one.
    fn start(seccomp: Option<Value>) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let mounted = Bpffs::mount(folder.path());
        let containerd = Containerd::start();
        let archive = image().expect("it was asked for").display().to_string();
        containerd.ask(&["images", "import", &archive]);
        let rootfs = containerd.path("rootfs");
        fs::create_dir(&rootfs).expect("there is room for a folder");
        containerd.ask(&["images", "mount", "--rw", IMAGE, &rootfs]);
        let pod = pod();
        let mut spec = containerd.spec(&names(added(&pod)));
        let port = http::free_address().port();
        let bpffs = folder.path().display().to_string();
        apply(&pod, &mut spec, (Path::new(&rootfs), &bpffs), port);
        if let Some(seccomp) = seccomp {
            spec["linux"]["seccomp"] = seccomp;
        }
        let file = containerd.path("spec.json");
        fs::write(&file, spec.to_string()).expect("a file can be written");

        let mut guest = Minivm::start(["--vcpus", "2", "--name", "of-the-host"]);
        guest.burn_vcpus("all", 20);
        let run = ["run", "--detach", "--config", &file, "agent"];
        let child = Launch::new("ctr")
            .args(["--address", &containerd.path("socket")])
            .args(run);
        let status = child.spawn().wait().expect("a child can be waited for");
        assert!(status.success(), "{status}");
        Self {
            containerd,
            port,
            _bpffs: mounted,
            _folder: folder,
            _guest: guest,
        }
    }

    /// Asserts that it shows the VM, that all sources work, and that it has the chart's rights.
    fn assert_complete(&self) {
        let metrics = eventually("the agent answers", || get(self.port, "/metrics"));
        let has = |words: &[&str]| {
            let of = |line: &str| words.iter().all(|word| line.contains(word));
            assert!(metrics.lines().any(of), "{words:?} is not in {metrics}");
        };
        has(&["virtlens_vm_info", "vm=\"of-the-host\""]);
        has(&[
            "virtlens_cpu_seconds_total",
            "vm=\"of-the-host\"",
            "role=\"vcpu\"",
        ]);
        for source in SOURCES {
            has(&[&format!("virtlens_source_up{{source=\"{source}\"}} 1")]);
        }
        eventually("a recorded reading", || {
            let kept = "virtlens_recorded_readings_total{result=\"kept\"} ";
            let metrics = get(self.port, "/metrics")?;
            let kept = metrics.lines().find_map(|line| line.strip_prefix(kept))?;
            (kept != "0").then_some(())
        });
        assert!(get(self.port, "/readyz").is_some_and(|answer| answer.contains(" 200 ")));
        assert_bound(&self.containerd, added(&pod()));
    }

    /// Runs `virtlens` in the container, as `kubectl exec` does: exit code and output.
    fn exec(&self, args: &[&str]) -> (Option<i32>, String) {
        let program = ["tasks", "exec", "--exec-id", "command", "agent", "virtlens"];
        let output = self.containerd.ctr(&[&program, args].concat()).output();
        let output = output.expect("ctr is in PATH");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}

/// Those that work on every host that these tests run on.
const SOURCES: [&str; 8] = [
    "task_pass",
    "file_pass",
    "lifetime",
    "rename",
    "placement",
    "cgroups",
    "topology",
    "pins",
];

fn ready(test: &str) -> bool {
    let needs = [
        need::root(),
        need::kvm(),
        need::bpf(),
        need::containerd(),
        image().map(drop),
    ];
    need::all(test, needs)
}

#[test]
fn image_with_chart_settings_finds_vm_of_host() {
    if ready("image_with_chart_settings_finds_vm_of_host") {
        Agent::start(None).assert_complete();
    }
}

/// `deploy/seccomp`.
fn profile() -> Value {
    let text = include_str!("../../deploy/seccomp/virtlens.json");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn agent_and_its_commands_work_under_the_seccomp_profile() {
    if !ready("agent_and_its_commands_work_under_the_seccomp_profile") {
        return;
    }
    let agent = Agent::start(Some(profile()));
    agent.assert_complete();
    for (args, shown) in [
        (&["snapshot"][..], "of-the-host"),
        (&["topology"], "of-the-host"),
        (&["doctor", "--for", "1s"], "1 VM"),
        (&["top"], "of-the-host"),
        (&["trace", "--for", "500ms", "-o", "-", "of-the-host"], ""),
    ] {
        let (code, text) = agent.exec(args);
        assert_eq!(code, Some(0), "{args:?}: {text}");
        assert!(text.contains(shown), "{args:?}: {text}");
    }
}

/// Negative control: the profile is in force, and `check` names it.
#[test]
fn check_names_a_seccomp_profile_without_bpf() {
    if !ready("check_names_a_seccomp_profile_without_bpf") {
        return;
    }
    let mut profile = profile();
    let names = profile["syscalls"][0]["names"].as_array_mut();
    names.expect("a list").retain(|name| name != "bpf");
    let agent = Agent::start(Some(profile));
    let answer = eventually("the agent answers", || get(agent.port, "/metrics"));
    assert!(answer.contains("virtlens_source_up{source=\"task_pass\"} 0"));
    let (_, text) = agent.exec(&["check"]);
    assert!(text.contains("seccomp"), "{text}");
}

/// Asserts by the kernel's files that the agent has the chart's capabilities and no
/// others.
fn assert_bound(containerd: &Containerd, added: &Value) {
    let list = containerd.ask(&["tasks", "list"]);
    let line = list.lines().find(|line| line.starts_with("agent"));
    let pid = line.and_then(|line| line.split_whitespace().nth(1));
    let pid = pid.unwrap_or_else(|| panic!("no pid in {list}"));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {status}"))
            .trim()
    };
    let given = names(added);
    let bits = CAPABILITIES.iter().map(|(name, bit)| {
        assert!(given.contains(&format!("CAP_{name}")), "{given:?}");
        1_u64 << bit
    });
    let mask = format!("{:016x}", bits.sum::<u64>());
    assert_eq!(given.len(), CAPABILITIES.len(), "{given:?}");
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(field(set), mask, "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"));
    let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).expect("it lives");
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/"));
    let options = root.and_then(|line| line.split(' ').nth(3));
    assert!(
        options.is_some_and(|all| all.split(',').any(|one| one == "ro")),
        "{mounts}"
    );
}

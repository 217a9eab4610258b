//! libvirt itself: a private daemon, and virsh.
//!
//! The packages are not installed. An overlay puts their /usr over that of the machine,
//! whose root is shared and read-only; their writes go to memory.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use virtlens_tests::eventually;

/// Directory of all files of the suite.
pub(crate) const DIR: &str = "/run/libvirt-suite";

const DAEMON_LOG: &str = "/run/libvirt-suite/libvirtd.log";

/// A running libvirtd.
pub(crate) struct Libvirt {
    daemon: Child,
    /// URI of its QEMU driver for virsh.
    uri: &'static str,
}

impl Libvirt {
    /// Starts the daemon and waits until it answers.
    pub(crate) fn start() -> Self {
        lay_over_the_machine();
        let log = File::create(DAEMON_LOG).expect("the suite's directory can be written");
        let daemon = Command::new("/usr/sbin/libvirtd")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn()
            .expect("libvirtd starts");
        let mut libvirt = Self {
            daemon,
            uri: "qemu:///system",
        };
        eventually("libvirtd to answer", || {
            if let Some(status) = libvirt.daemon.try_wait().expect("it is a child") {
                panic!("libvirtd ended ({status}): {}", log_text());
            }
            // A driver that cannot start ends the daemon after its socket exists.
            libvirt.try_virsh(&["list"]).ok()
        });
        libvirt
    }

    /// Output of a virsh command; panics with its error.
    pub(crate) fn virsh(&self, command: &str) -> String {
        self.try_virsh(&command.split(' ').collect::<Vec<_>>())
            .unwrap_or_else(|error| panic!("virsh {command}: {error}; libvirtd: {}", log_text()))
    }

    /// Output of virsh with these arguments, or its error.
    pub(crate) fn try_virsh(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new("/usr/bin/virsh");
        command.args(["-q", "-c", self.uri]).args(args);
        let out = command.output().expect("virsh starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if out.status.success() {
            Ok(text(&out.stdout))
        } else {
            Err(text(&out.stderr))
        }
    }

    /// Answer of a domain's QEMU to a monitor command.
    pub(crate) fn monitor(&self, domain: &str, command: &str) -> serde_json::Value {
        let request = format!(r#"{{"execute":"{command}"}}"#);
        let answer = self.try_virsh(&["qemu-monitor-command", domain, &request]);
        let answer = answer.unwrap_or_else(|error| panic!("{command}: {error}"));
        let mut answer: serde_json::Value = serde_json::from_str(&answer).expect("it is JSON");
        answer["return"].take()
    }
}

fn log_text() -> String {
    fs::read_to_string(DAEMON_LOG).unwrap_or_default()
}

/// The `usr` directory that contains a program of `PATH`.
fn usr_of(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find(|dir| dir.join(program).exists());
    let dir = found.unwrap_or_else(|| panic!("no {program} on PATH: scripts/unpack-packages"));
    dir.parent().expect("it lies in usr/*bin").to_owned()
}

fn lay_over_the_machine() {
    for dir in ["", "/share", "/etc/upper", "/etc/work"] {
        fs::create_dir_all(format!("{DIR}{dir}")).expect("/run can be written");
    }
    let usr = [usr_of("virsh"), usr_of("libvirtd"), "/usr".into()];
    let usr = usr.map(|dir| dir.display().to_string()).join(":");
    mount(&[
        "-t",
        "overlay",
        "-o",
        &format!("lowerdir={usr}"),
        "overlay",
        "/usr",
    ]);
    let etc = format!("lowerdir=/etc,upperdir={DIR}/etc/upper,workdir={DIR}/etc/work");
    mount(&["-t", "overlay", "-o", &etc, "overlay", "/etc"]);
    mount(&["-t", "tmpfs", "var", "/var"]);
    std::os::unix::fs::symlink("/run", "/var/run").expect("/var is empty");
    for dir in [
        "/var/lib",
        "/var/cache",
        "/var/log",
        "/var/tmp",
        "/etc/libvirt/qemu",
    ] {
        fs::create_dir_all(dir).expect("it can be written");
    }
    // Files that the packages' install scripts would create.
    for (file, line) in [
        (
            "/etc/passwd",
            "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin\n",
        ),
        ("/etc/group", "libvirt-qemu:x:64055:\n"),
    ] {
        let text = fs::read_to_string(file).expect("every system has it");
        fs::write(file, text + line).expect("/etc can be written");
    }
    // Without a service manager: no socket activation, no virtlogd, no dedicated users.
    let daemon = "auth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n";
    fs::write("/etc/libvirt/libvirtd.conf", daemon).expect("/etc can be written");
    let qemu = "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\n\
                dynamic_ownership = 0\nremember_owner = 0\nstdio_handler = \"file\"\n\
                namespaces = []\n";
    fs::write("/etc/libvirt/qemu.conf", qemu).expect("/etc can be written");
}

fn mount(args: &[&str]) {
    let out = Command::new("mount").args(args).output();
    let out = out.expect("mount starts");
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "mount {args:?}: {error}");
}

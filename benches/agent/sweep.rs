//! Removes the cgroups of VMs when the benchmark is interrupted. A separate process does so: it
//! waits for the end of its stdin.

use std::env;
use std::fs;
use std::io::{Read as _, stdin};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::{cgroupfs_pod_path, cpu_cgroup_roots};

/// The flag that makes this program the process that removes cgroups.
pub(crate) const FLAG: &str = "--sweep";

/// Attempts to remove a cgroup, and the pause between two: its VM was just killed.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// Removes the remaining cgroups of this benchmark's pods when it ends.
#[derive(Debug)]
pub(crate) struct Sweeper(Child);

impl Sweeper {
    pub(crate) fn start() -> Self {
        let own = std::process::id().to_string();
        let sweeper = Command::new(env::current_exe().expect("this program has a path"))
            .args([FLAG, &own])
            .stdin(Stdio::piped())
            .spawn();
        Self(sweeper.expect("this program can be started again"))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// The process: `bench` is the pid of the benchmark, with which the uids of its pods begin
/// (`unique_pod_uid`).
pub(crate) fn sweep(bench: &str) {
    crate::idle::ignore_interrupts();
    drop(stdin().read_to_end(&mut Vec::new()));
    let bench: u32 = bench.parse().expect("a pid");
    let prefix = cgroupfs_pod_path(&format!("{bench:08x}-7e57-"));
    let prefix = Path::new(&prefix);
    let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
        return;
    };
    let name = name.to_string_lossy();
    for root in cpu_cgroup_roots().into_iter().flatten() {
        let pods = fs::read_dir(root.join(parent)).into_iter().flatten();
        for pod in pods.flatten() {
            if pod.file_name().to_string_lossy().starts_with(&*name) {
                remove(&pod.path());
            }
        }
    }
}

/// Removes a cgroup with those below it, unless a process stays in one.
fn remove(cgroup: &Path) {
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten();
    below
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .for_each(|path| remove(&path));
    for _ in 0..ATTEMPTS {
        if fs::remove_dir(cgroup).is_ok() {
            return;
        }
        sleep(PAUSE);
    }
}

//! Private cgroups of a test, with paths like those of pods, on v1 and v2.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Directories created by this process; the last user removes each.
static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A cgroup that is removed on drop: drop its processes first.
#[derive(Debug)]
pub struct TestCgroup {
    path: String,
    version: Version,
    /// Directory in the hierarchy of the cpu controller.
    cpu_dir: PathBuf,
    /// Directory in the hierarchy of CPU accounting, a separate one on some v1 hosts.
    usage_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The kernel's counters of one level's quota; all 0 if no quota was ever set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the group ran.
    pub periods: u64,
    /// Periods in which its quota ran out.
    pub throttled_periods: u64,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: u64,
}

impl TestCgroup {
    /// Creates a cgroup and its ancestors; `path` is relative to the mount, such as
    /// `kubepods/pod…/…`.
    pub fn new(path: &str) -> Self {
        let (version, [cpu_root, usage_root]) =
            hierarchy().unwrap_or_else(|cause| panic!("{cause}"));
        for root in BTreeSet::from([&cpu_root, &usage_root]) {
            make(root, path, version);
        }
        let (cpu_dir, usage_dir) = (cpu_root.join(path), usage_root.join(path));
        Self {
            path: path.to_owned(),
            version,
            cpu_dir,
            usage_dir,
        }
    }

    /// Creates a child cgroup. On v2 this cgroup may then hold no process.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self::new(&format!("{}/{name}", self.path))
    }

    /// Path as /proc/PID/cgroup shows it.
    pub fn path(&self) -> String {
        format!("/{}", self.path)
    }

    /// Directory in the hierarchy of the cpu controller.
    pub fn dir(&self) -> &Path {
        &self.cpu_dir
    }

    /// Whether it is on v1, where each thread may be in any cgroup.
    pub fn is_v1(&self) -> bool {
        self.version == Version::V1
    }

    /// Moves a process with all its threads into it.
    pub fn add_process(&self, pid: u32) {
        self.each_dir(|dir| put(&dir.join("cgroup.procs"), &pid.to_string()));
    }

    /// Moves one thread into it. On v2 only [`threaded`](Self::threaded) cgroups of the
    /// process's own domain accept one.
    pub fn add_thread(&self, tid: i32) {
        let file = if self.version == Version::V1 {
            "tasks"
        } else {
            "cgroup.threads"
        };
        self.each_dir(|dir| put(&dir.join(file), &tid.to_string()));
    }

    /// Makes it a threaded cgroup; on v1 every cgroup is threaded.
    pub fn threaded(&self) {
        if self.version == Version::V2 {
            put(&self.cpu_dir.join("cgroup.type"), "threaded");
        }
    }

    /// Enables controllers besides cpu for it, such as `memory`. Only on v2, and before
    /// any process runs in its ancestors.
    pub fn enable(&self, controllers: &[&str]) {
        assert!(!self.is_v1(), "on v1 each controller has a hierarchy");
        let depth = self.path.split('/').count();
        let above: Vec<&Path> = self.cpu_dir.ancestors().skip(1).take(depth).collect();
        for dir in above.into_iter().rev() {
            for controller in controllers {
                put(
                    &dir.join("cgroup.subtree_control"),
                    &format!("+{controller}"),
                );
            }
        }
    }

    /// Writes to one of its files, such as `cpuset.mems`.
    pub fn set(&self, file: &str, text: &str) {
        put(&self.cpu_dir.join(file), text);
    }

    /// Sets the quota, µs per period; `None` removes it.
    pub fn set_quota(&self, quota_us: Option<u64>, period_us: u64) {
        let text = |none: &str| quota_us.map_or(none.to_owned(), |us| us.to_string());
        if self.version == Version::V1 {
            put(
                &self.cpu_dir.join("cpu.cfs_period_us"),
                &period_us.to_string(),
            );
            put(&self.cpu_dir.join("cpu.cfs_quota_us"), &text("-1"));
        } else {
            put(
                &self.cpu_dir.join("cpu.max"),
                &format!("{} {period_us}", text("max")),
            );
        }
    }

    /// CPU time of all tasks that ever ran in it or its descendants, ns. On v2 the
    /// resolution is 1 µs.
    pub fn usage_ns(&self) -> u64 {
        if self.version == Version::V1 {
            let text = get(&self.usage_dir.join("cpuacct.usage"));
            return text.trim().parse().expect("cpuacct.usage is a number");
        }
        self.cpu_stat("usage_usec") * 1000
    }

    /// Its throttling counters.
    pub fn throttling(&self) -> Throttling {
        let throttled_ns = match self.version {
            Version::V1 => self.cpu_stat("throttled_time"),
            Version::V2 => self.cpu_stat("throttled_usec") * 1000,
        };
        Throttling {
            periods: self.cpu_stat("nr_periods"),
            throttled_periods: self.cpu_stat("nr_throttled"),
            throttled_ns,
        }
    }

    /// Opens the files that move a process into it.
    pub(crate) fn open_procs(&self) -> Vec<File> {
        let mut files = Vec::new();
        self.each_dir(|dir| {
            let path = dir.join("cgroup.procs");
            let opened = OpenOptions::new().write(true).open(&path);
            files.push(opened.unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        });
        files
    }

    fn cpu_stat(&self, key: &str) -> u64 {
        let text = get(&self.cpu_dir.join("cpu.stat"));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("no {key} in cpu.stat: {text}"));
        value.parse().expect("cpu.stat has numbers")
    }

    fn each_dir(&self, mut act: impl FnMut(&Path)) {
        for dir in BTreeSet::from([&self.cpu_dir, &self.usage_dir]) {
            act(dir);
        }
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let depth = self.path.split('/').count();
        self.each_dir(|dir| dir.ancestors().take(depth).for_each(remove));
    }
}

/// Mount points of the cpu and the accounting hierarchy; they may be equal.
///
/// # Errors
/// No hierarchy with the cpu controller is mounted.
pub fn roots() -> Result<[PathBuf; 2], String> {
    hierarchy().map(|(_, roots)| roots)
}

/// A pod's path as kubelet's cgroupfs driver creates it, class Burstable.
pub fn cgroupfs_pod_path(uid: &str) -> String {
    format!("kubepods/burstable/pod{uid}")
}

/// A pod's path as kubelet's systemd driver creates it, class Burstable.
pub fn systemd_pod_path(uid: &str) -> String {
    let uid = uid.replace('-', "_");
    let above = "kubepods.slice/kubepods-burstable.slice";
    format!("{above}/kubepods-burstable-pod{uid}.slice")
}

/// A pod uid that no other test on this host uses now.
pub fn unique_pod_uid() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}-7e57-4000-8000-{count:012x}", std::process::id())
}

fn hierarchy() -> Result<(Version, [PathBuf; 2]), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    find_hierarchy(&mounts, |root| {
        let list = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        list.split_whitespace()
            .any(|controller| controller == "cpu")
    })
    .ok_or_else(|| "no cgroup hierarchy with the cpu controller is mounted".to_owned())
}

/// Finds v1 if it has the cpu controller, else v2. Fields: `proc_pid_mountinfo(5)`.
fn find_hierarchy(
    mounts: &str,
    has_cpu: impl Fn(&Path) -> bool,
) -> Option<(Version, [PathBuf; 2])> {
    let mount = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut filesystem = filesystem.split(' ');
            let is_kind = filesystem.next() == Some(kind);
            let mut options = filesystem.nth(1)?.split(',');
            let wanted = is_kind && options.any(|one| one == option);
            wanted.then(|| PathBuf::from(mount.split(' ').nth(4).unwrap_or_default()))
        })
    };
    if let (Some(cpu), Some(usage)) = (mount("cgroup", "cpu"), mount("cgroup", "cpuacct")) {
        return Some((Version::V1, [cpu, usage]));
    }
    let root = mount("cgroup2", "rw").filter(|root| has_cpu(root))?;
    Some((Version::V2, [root.clone(), root]))
}

fn make(root: &Path, path: &str, version: Version) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut dir = root.to_owned();
    for name in path.split('/') {
        if version == Version::V2 {
            put(&dir.join("cgroup.subtree_control"), "+cpu");
        }
        dir.push(name);
        match fs::create_dir(&dir) {
            Ok(()) => drop(made.insert(dir.clone())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot make {}: {error}", dir.display()),
        }
    }
}

/// Removes a directory created by `make`, unless another cgroup is below it.
fn remove(dir: &Path) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let has_children = || {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().is_dir())
    };
    if !made.contains(dir) || has_children() {
        return;
    }
    // A killed and reaped process leaves its cgroup slightly later.
    let removed = (0..100).any(|_| {
        fs::remove_dir(dir).is_ok() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    });
    if removed {
        made.remove(dir);
    } else {
        eprintln!(
            "cannot remove {}: drop what runs in it before the cgroup",
            dir.display()
        );
    }
}

fn put(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{text} to {}: {error}", file.display()));
}

fn get(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchy_with_v1_controller_is_v1() {
        let split = "25 24 0:22 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                     26 24 0:23 / /cg/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
                     27 24 0:24 / /cg/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let roots = ["/cg/cpu", "/cg/cpuacct"].map(PathBuf::from);
        assert_eq!(find_hierarchy(split, |_| false), Some((Version::V1, roots)));
        let joint = "25 24 0:22 / /cg/both rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let roots = ["/cg/both", "/cg/both"].map(PathBuf::from);
        assert_eq!(find_hierarchy(joint, |_| false), Some((Version::V1, roots)));
        let unified = "30 23 0:26 / /cg rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let roots = ["/cg", "/cg"].map(PathBuf::from);
        assert_eq!(
            find_hierarchy(unified, |_| true),
            Some((Version::V2, roots))
        );
        assert_eq!(find_hierarchy(unified, |_| false), None);
    }
}

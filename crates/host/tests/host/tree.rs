//! A synthetic host in a temporary directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;
use virtlens_host::{CgroupVersion, Cgroups, HostRoot};
use virtlens_model::vocab::{CgroupId, Switches};

const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct
36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
";
const V2_MOUNTS: &str = "30 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const HYBRID_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

pub(crate) struct Tree {
    dir: TempDir,
    version: CgroupVersion,
}

/// A thread to create; [`THREAD`] has the defaults.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: &'static [u8],
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) start_ticks: u64,
    pub(crate) flags: u32,
    pub(crate) cgroup: &'static str,
    pub(crate) cpus: &'static str,
}

pub(crate) const THREAD: Thread = Thread {
    tgid: 0,
    tid: 0,
    comm: b"",
    run_ns: 5_000_000,
    wait_ns: 700,
    start_ticks: 1000,
    flags: 0x0040_0000,
    cgroup: "/",
    cpus: "0-3",
};

/// Context switches of every thread.
pub(crate) const SWITCHES: Switches = Switches {
    timeslices: 9,
    involuntary: 4,
};

impl Tree {
    /// A host with the mountinfo `mounts`.
    pub(crate) fn with_mounts(version: CgroupVersion, mounts: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let tree = Self { dir, version };
        tree.write("proc/self/mountinfo", mounts);
        tree.cgroup("/");
        tree
    }

    pub(crate) fn v1() -> Self {
        Self::with_mounts(CgroupVersion::V1, V1_MOUNTS)
    }

    pub(crate) fn v2() -> Self {
        Self::with_mounts(CgroupVersion::V2, V2_MOUNTS)
    }

    pub(crate) fn hybrid() -> Self {
        Self::with_mounts(CgroupVersion::V1, &format!("{HYBRID_MOUNT}{V1_MOUNTS}"))
    }

    pub(crate) fn root(&self) -> HostRoot {
        HostRoot::new(self.dir.path())
    }

    pub(crate) fn cgroups(&self) -> Cgroups {
        Cgroups::find(&self.root()).expect("a cgroup mount")
    }

    pub(crate) fn id(&self, cgroup: &str) -> CgroupId {
        self.cgroups().id_of(cgroup).expect(cgroup)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn mkdir(&self, path: &str) {
        fs::create_dir_all(self.path(path)).expect(path);
    }

    pub(crate) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let file = self.path(path);
        fs::create_dir_all(file.parent().expect("a file below the root")).expect(path);
        fs::write(file, bytes).expect(path);
    }

    pub(crate) fn append(&self, path: &str, text: &str) {
        let old = fs::read_to_string(self.path(path)).unwrap_or_default();
        self.write(path, old + text);
    }

    pub(crate) fn link(&self, path: &str, target: &[u8]) {
        let link = self.path(path);
        fs::create_dir_all(link.parent().expect("a link below the root")).expect(path);
        symlink(OsStr::from_bytes(target), link).expect(path);
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() {
            fs::remove_dir_all(&path).expect("a directory to remove");
        } else {
            fs::remove_file(&path).expect("a file to remove");
        }
    }

    /// The directory of a cgroup, relative to the root of the tree.
    pub(crate) fn cgroup_dir(&self, path: &str) -> String {
        let mount = match self.version {
            CgroupVersion::V1 => "sys/fs/cgroup/cpu,cpuacct",
            CgroupVersion::V2 => "sys/fs/cgroup",
        };
        format!("{mount}{}", path.trim_end_matches('/'))
    }

    /// Creates a cgroup with a quota of half a CPU, or the root cgroup.
    pub(crate) fn cgroup(&self, path: &str) {
        let dir = self.cgroup_dir(path);
        let write = |name: &str, text: &str| self.write(&format!("{dir}/{name}"), text);
        match self.version {
            CgroupVersion::V1 => {
                write("tasks", "");
                write("cpu.cfs_quota_us", "50000\n");
                write("cpu.cfs_period_us", "100000\n");
                write("cpu.cfs_burst_us", "2000\n");
                write(
                    "cpu.stat",
                    "nr_periods 10\nnr_throttled 3\nthrottled_time 7000\n",
                );
                write("cpuacct.usage", "9000\n");
            }
            CgroupVersion::V2 => {
                write("cgroup.threads", "");
                write(
                    "cpu.stat",
                    "usage_usec 9\nuser_usec 4\nsystem_usec 5\nnr_periods 10\nnr_throttled 3\n\
                     throttled_usec 7\n",
                );
                if path != "/" {
                    write("cpu.max", "50000 100000\n");
                    write("cpu.max.burst", "2000\n");
                }
            }
        }
    }

    /// Creates a thread, its process if it is the first one, and its cgroup membership.
    pub(crate) fn thread(&self, thread: Thread) {
        let Thread { tgid, tid, .. } = thread;
        let dir = format!("proc/{tgid}/task/{tid}");
        let mut stat = format!("{tid} (").into_bytes();
        stat.extend_from_slice(thread.comm);
        let numbers = format!(
            ") S 1 {tgid} {tgid} 0 -1 {} 100 0 0 0 250 3 0 0 20 0 4 0 {} 3133440 410 1 1 1 0 0 0 \
             0 0 0 0 0 0 0 17 2 0 0 0 200 0 0 0 0 0 0 0 0 0\n",
            thread.flags, thread.start_ticks
        );
        stat.extend_from_slice(numbers.as_bytes());
        let status = format!(
            "Tgid:\t{tgid}\nCpus_allowed_list:\t{}\nnonvoluntary_ctxt_switches:\t{}\n",
            thread.cpus, SWITCHES.involuntary
        );
        let cgroup = match self.version {
            CgroupVersion::V1 => {
                format!("9:name=systemd:/x\n4:cpu,cpuacct:{}\n0::/\n", thread.cgroup)
            }
            CgroupVersion::V2 => format!("0::{}\n", thread.cgroup),
        };
        for dir in [dir.clone(), format!("proc/{tid}")] {
            self.write(&format!("{dir}/stat"), &stat);
            self.write(&format!("{dir}/status"), &status);
            self.write(&format!("{dir}/cgroup"), &cgroup);
        }
        let slices = SWITCHES.timeslices;
        let schedstat = format!("{} {} {slices}\n", thread.run_ns, thread.wait_ns);
        self.write(&format!("{dir}/schedstat"), schedstat);
        self.write(&format!("proc/{tid}/comm"), [thread.comm, b"\n"].concat());
        if tid == tgid {
            self.mkdir(&format!("proc/{tid}/fd"));
        }
        self.append(&self.thread_list(thread.cgroup), &format!("{tid}\n"));
    }

    pub(crate) fn thread_list(&self, cgroup: &str) -> String {
        let name = match self.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.threads",
        };
        format!("{}/{name}", self.cgroup_dir(cgroup))
    }

    /// Ends a thread that [`Tree::thread`] created, as the kernel would show it.
    pub(crate) fn end(&self, thread: Thread) {
        self.remove(&format!("proc/{}/task/{}", thread.tgid, thread.tid));
        self.remove(&format!("proc/{}", thread.tid));
        self.leave(thread);
    }

    /// Removes a thread from its cgroup's list.
    pub(crate) fn leave(&self, thread: Thread) {
        let list = self.thread_list(thread.cgroup);
        let old = fs::read_to_string(self.path(&list)).expect("a list of threads");
        let own = thread.tid.to_string();
        let new: Vec<&str> = old.lines().filter(|tid| *tid != own).collect();
        self.write(&list, new.join("\n") + "\n");
    }

    /// Creates the descriptors of a process: these links, numbered from 3.
    pub(crate) fn fds(&self, pid: u32, links: &[&str]) {
        for (fd, link) in (3..).zip(links) {
            self.link(&format!("proc/{pid}/fd/{fd}"), link.as_bytes());
        }
    }
}

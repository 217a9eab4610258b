//! The load of a measurement: a node full of VMs.

use std::os::unix::fs::MetadataExt as _;
use std::thread;

use rustc_hash::FxHashSet;
use rustix::process::{Pid, Signal, kill_process};
use virtlens_model::facts::WatchedCgroup;
use virtlens_model::vocab::CgroupId;
use virtlens_tests::process::tids;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

/// vCPUs of a VM of the full node.
pub(crate) const VCPUS: usize = 8;

/// Arguments of the VMs of the full node. With the main thread and the kernel's worker
/// (`kvm-nx-lpage-re`, since v6.14) they have four threads besides the vCPUs.
const FULL: &[&str] = &[
    "--vcpus",
    "8",
    "--thread",
    "IO iothread0=1",
    "--thread",
    "worker=1",
];

/// Those of the full node, each vCPU of which wakes four times a second, as those of idle guests
/// do.
const TICKING: &[&str] = &[
    "--vcpus",
    "8",
    "--thread",
    "IO iothread0=1",
    "--thread",
    "worker=1",
    "--start",
    "tick:250",
];

/// Arguments of microVMs: one vCPU, and no thread besides the main one and the kernel's.
const MICRO: &[&str] = &["--vcpus", "1"];

/// Threads that start VMs.
const STARTERS: usize = 4;

/// VMs, each in a container of a separate pod where cgroups can be
/// created.
#[derive(Debug)]
pub(crate) struct Vms {
    args: &'static [&'static str],
    // VMs are dropped before their cgroups, and containers before pods.
    started: Vec<Minivm>,
    cgroups: Vec<[TestCgroup; 2]>,
}

impl Vms {
    /// No VMs yet, of the shape of the full node.
    pub(crate) fn full() -> Self {
        Self::of(FULL)
    }

    /// No VMs yet, of the shape of the full node, whose vCPUs wake all the time.
    pub(crate) fn ticking() -> Self {
        Self::of(TICKING)
    }

    /// No VMs yet, with one vCPU each.
    pub(crate) fn micro() -> Self {
        Self::of(MICRO)
    }

    fn of(args: &'static [&'static str]) -> Self {
        Self {
            args,
            started: Vec::new(),
            cgroups: Vec::new(),
        }
    }

    /// Starts VMs until there are `count`. Some starts overlap, because KVM mostly waits when
    /// it creates a VM.
    pub(crate) fn grow_to(&mut self, count: usize) {
        let args = self.args;
        let numbers: Vec<usize> = (self.started.len()..count).collect();
        let start_some = |numbers: &[usize]| -> Vec<_> {
            numbers.iter().map(|number| start(args, *number)).collect()
        };
        let started = thread::scope(|scope| {
            let starters = numbers.chunks(numbers.len().div_ceil(STARTERS).max(1));
            let starters = starters.map(|some| scope.spawn(move || start_some(some)));
            let starters: Vec<_> = starters.collect();
            let joined = starters.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .flat_map(|started| started.expect("VMs can be started"))
                .collect::<Vec<_>>()
        });
        for (vm, cgroups) in started {
            self.started.push(vm);
            self.cgroups.extend(cgroups);
        }
    }

    /// Number of threads of a VM according to the kernel.
    pub(crate) fn threads_each(&self) -> usize {
        let threads: usize = self.started.iter().map(|vm| tids(vm.pid()).len()).sum();
        threads / self.started.len().max(1)
    }

    /// Whether the pods are on cgroup v1.
    pub(crate) fn is_v1(&self) -> bool {
        self.cgroups.first().is_some_and(|[_, pod]| pod.is_v1())
    }

    /// The cgroups of the pods, as the agent watches them.
    pub(crate) fn watched(&self) -> FxHashSet<WatchedCgroup> {
        // The kernel uses the id of a cgroup as the inode number of its directory
        // (kernfs_get_inode, fs/kernfs/inode.c).
        let id = |pod: &TestCgroup| pod.dir().metadata().map(|dir| CgroupId(dir.ino()));
        let pods = self.cgroups.iter().map(|[_, pod]| id(pod));
        let ids = pods.map(|id| id.expect("the cgroup exists"));
        ids.map(|cgroup| WatchedCgroup {
            cgroup,
            pod: cgroup,
        })
        .collect()
    }
}

/// Starts VM `number`, in a container of a new pod where cgroups can be created.
fn start(args: &[&str], number: usize) -> (Minivm, Option<[TestCgroup; 2]>) {
    let name = format!("bench-{number}");
    let launch = Minivm::launch().args(args).args(["--name", &name]);
    if need::cpu_cgroup().is_err() {
        return (Minivm::start_launch(launch), None);
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let container = pod.child(&format!("{number:064x}"));
    let vm = Minivm::start_launch(launch.cgroup(&container));
    (vm, Some([container, pod]))
}

impl Drop for Vms {
    fn drop(&mut self) {
        // First all of them, because KVM takes milliseconds to release a VM.
        for vm in &self.started {
            // Each is our child and was not waited for. It may have ended already.
            if let Some(pid) = Pid::from_raw(vm.pid().cast_signed()) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

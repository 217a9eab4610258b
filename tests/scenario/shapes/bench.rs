//! The pod's processes in other cgroups than the rig's, their values according to the
//! kernel, and an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_tests::exposed::Counters;
use virtlens_tests::process::{self, Schedstat};
use virtlens_tests::{Minivm, TestCgroup, Throttling, eventually};
use virtlens_vmtest::scenario::{Pod, Scenario};

use super::activity::Activity;
use crate::pods::{self, Reader};
use crate::throttle;

pub(super) const LOADS: [&str; 3] = ["vhost", "virtiofs", "cpu"];

const PERIOD_US: u64 = 100_000;

const WINDOW: Duration = Duration::from_secs(3);

/// CPU time of the shim during an observation, ms.
const OF_SHIM_MS: u32 = 300;

/// The pod's original cgroup. Its processes are moved back on drop.
struct Home {
    scenario: Scenario,
    pod: Pod,
    /// Kernel threads of the VM in the pod's cgroup, which do not move with a process.
    kthreads: Vec<u32>,
    slice: TestCgroup,
    scope: TestCgroup,
    virtiofsd: TestCgroup,
    /// Original limit of the slice.
    usual: String,
}

impl Home {
    fn new(scenario: &Scenario, pod: &Pod, kthreads: &[u32]) -> Self {
        let open = |path: &Path| TestCgroup::new(&path.to_string_lossy());
        let slice = open(&pod.pod_cgroup);
        let usual = fs::read_to_string(slice.dir().join("cpu.max")).expect("it has a limit");
        let is_inside = |tid: &&u32| !pods::is_outside(**tid, &slice.path());
        Self {
            scenario: scenario.clone(),
            pod: pod.clone(),
            kthreads: kthreads.iter().filter(is_inside).copied().collect(),
            scope: open(&pod.vmm_cgroup),
            virtiofsd: open(&pod.virtiofsd_cgroup),
            slice,
            usual,
        }
    }

    /// Moves the pod's processes back into it.
    fn enter(&self) {
        self.scope.add_process(self.pod.vmm_pid);
        let kthreads = self.kthreads.iter();
        kthreads.for_each(|tid| self.scope.add_process(*tid));
        let virtiofsd = self.pod.virtiofsd_pids.iter();
        virtiofsd.for_each(|pid| self.virtiofsd.add_process(*pid));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.enter();
        self.slice.set("cpu.max", &self.usual);
        for load in LOADS {
            if let Err(error) = self.scenario.stop(load) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// The pod, in its present cgroups, and the agent that reads it. Fields are dropped in
/// order: cgroups are removed once they are empty.
pub(super) struct Bench {
    reader: Reader,
    counters: Counters,
    /// Threads of each role except the emulator.
    pub(super) threads: BTreeMap<Role, Vec<(u32, i32)>>,
    /// Kernel threads of the VM.
    kthreads: Vec<u32>,
    /// CPU time that threads used between a reading and the move after it, ns; it counts
    /// for their present cgroup.
    pub(super) moving_ns: u64,
    home: Home,
    shim: Minivm,
    overhead: TestCgroup,
    stray: TestCgroup,
}

/// The kernel's counters.
#[derive(Clone)]
pub(super) struct Truth {
    pub(super) read: Instant,
    /// CPU time and run delay of each role's threads, ns.
    pub(super) roles: BTreeMap<Role, [u64; 2]>,
    /// CPU time of the pod's cgroups and of the VM's threads outside of them, ns.
    pub(super) all_ns: u64,
    /// CPU time of the pod's slice, ns.
    pub(super) slice_ns: u64,
    pub(super) slice: Throttling,
}

/// One of the agent's readings between two of the kernel's.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) low: Truth,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) high: Truth,
}

impl Bench {
    pub(super) fn start() -> Self {
        let mut reader = Reader::new();
        let pod = reader.named().clone();
        let snapshot = reader.read();
        let vhost = vhost_workers(pod.vmm_pid);
        let net = pod.vhost_tid.expect("it has a vhost device");
        assert!(vhost.iter().any(|(_, tid)| tid.cast_unsigned() == net));
        let mut threads = throttle::threads(&pod);
        threads.insert(Role::Vhost, vhost);
        let processes = std::iter::once(&pod.vmm_pid).chain(&pod.virtiofsd_pids);
        let own: BTreeSet<i32> = processes.flat_map(|pid| process::tids(*pid)).collect();
        let seen = pods::vm(&snapshot, &pod).threads.iter().map(|one| one.tid);
        let kthreads: Vec<u32> = seen
            .filter(|tid| !own.contains(&tid.cast_signed()))
            .collect();
        let home = Home::new(&reader.scenario, &pod, &kthreads);
        let name = pod
            .vmm_cgroup
            .file_name()
            .expect("a scope")
            .to_string_lossy();
        let id = name.trim_start_matches("cri-containerd-");
        let id = id.trim_end_matches(".scope");
        let slice = pod
            .pod_cgroup
            .file_name()
            .expect("a slice")
            .to_string_lossy();
        let args = ["--vcpus", "0", "--comm", "containerd-shim"];
        let shim = Minivm::launch().args(args).cgroup(&home.scope);
        let shim = Minivm::start_launch(shim.args(["--thread", "containerd-shim=9"]));
        let of_shim = process::tids(shim.pid()).into_iter();
        threads.insert(Role::Helper, of_shim.map(|tid| (shim.pid(), tid)).collect());
        Self {
            counters: Counters::default(),
            threads,
            kthreads,
            shim,
            overhead: TestCgroup::new(&format!("kata_overhead/{id}")),
            stray: TestCgroup::new(&format!("{slice}:cri-containerd:{id}")),
            moving_ns: 0,
            home,
            reader,
        }
    }

    pub(super) fn pod(&self) -> &Pod {
        &self.home.pod
    }

    /// Path of the pod's slice.
    pub(super) fn slice(&self) -> String {
        self.home.slice.path()
    }

    /// Starts the loads and sets the limit.
    pub(super) fn load(&self, cores: f64) {
        let us = Duration::from_micros(PERIOD_US).mul_f64(cores).as_micros();
        let us = u64::try_from(us).expect("a quota of less than a day");
        self.home.slice.set_quota(Some(us), PERIOD_US);
        for load in LOADS {
            self.home.scenario.start(load).expect("the load starts");
        }
        // Until the limit throttles them.
        sleep(Duration::from_secs(1));
    }

    /// Reads the threads' CPU time just before a move.
    fn moving(&mut self, act: fn(&Self)) {
        let before = self.truth();
        let snapshot = self.reader.read();
        act(self);
        self.moving_ns += self.truth().all_ns - before.all_ns;
        self.counters.follow(&snapshot);
    }

    /// Moves the whole pod into the overhead cgroup, as at boot. Kernel threads stay
    /// where they are created: there, or in no cgroup of the pod.
    fn boot(&mut self) {
        self.moving(|bench| {
            let pod = bench.pod();
            let followers = pod.virtiofsd_pids.iter().chain(&bench.home.kthreads);
            for pid in followers.chain(&[pod.vmm_pid, bench.shim.pid()]) {
                bench.overhead.add_process(*pid);
            }
        });
        let overhead_ns = self.overhead.usage_ns();
        eventually("the VM to use CPU time while it boots", || {
            (self.overhead.usage_ns() > overhead_ns + 500_000_000).then_some(())
        });
    }

    /// Leaves the helpers in the overhead cgroup and moves QEMU to its pod.
    pub(super) fn split(&mut self) {
        self.boot();
        self.moving(|bench| bench.home.scope.add_process(bench.pod().vmm_pid));
    }

    /// Leaves the helpers in the overhead cgroup and moves QEMU to a top-level directory.
    pub(super) fn stray(&mut self) {
        self.boot();
        self.moving(|bench| bench.stray.add_process(bench.pod().vmm_pid));
        eventually("the last period of the empty slice to end", || {
            let periods = self.home.slice.throttling().periods;
            sleep(Duration::from_micros(3 * PERIOD_US));
            (self.home.slice.throttling().periods == periods).then_some(())
        });
    }

    /// Restores the rig's layout.
    pub(super) fn go_home(&mut self) {
        self.moving(|bench| {
            bench.home.enter();
            bench.home.scope.add_process(bench.shim.pid());
        });
    }

    fn truth(&self) -> Truth {
        let sum = |threads: &Vec<(u32, i32)>| {
            let times = threads.iter().map(|(pid, tid)| Schedstat::read(*pid, *tid));
            times.fold([0, 0], |[cpu, wait], one| {
                let one = one.expect("the thread lives on");
                [cpu + one.cpu_ns, wait + one.wait_ns]
            })
        };
        let roles = self.threads.iter().map(|(role, its)| (*role, sum(its)));
        let slice_ns = self.home.slice.usage_ns();
        let cgroups = [&self.home.slice, &self.overhead, &self.stray];
        let outside = self.kthreads.iter().filter(|tid| {
            let mut paths = cgroups.iter().map(|cgroup| cgroup.path());
            paths.all(|path| pods::is_outside(**tid, &path))
        });
        let outside = outside.map(|tid| (*tid, tid.cast_signed())).collect();
        let [outside_ns, _] = sum(&outside);
        Truth {
            read: Instant::now(),
            roles: roles.collect(),
            all_ns: slice_ns + self.overhead.usage_ns() + self.stray.usage_ns() + outside_ns,
            slice_ns,
            slice: self.home.slice.throttling(),
        }
    }

    pub(super) fn sample(&mut self, read: fn(&mut Reader) -> Arc<Snapshot>) -> Sample {
        let low = self.truth();
        let snapshot = read(&mut self.reader);
        let high = self.truth();
        self.counters.follow(&snapshot);
        Sample {
            low,
            snapshot,
            high,
        }
    }

    /// Observes the pod for some seconds in its present cgroups.
    pub(super) fn observe(&mut self) -> Activity {
        let began = self.sample(Reader::judge);
        let burning = Instant::now();
        self.shim.burn_threads("0", OF_SHIM_MS);
        sleep(WINDOW.saturating_sub(burning.elapsed()));
        let ended = self.sample(Reader::judge);
        let pod = self.pod().clone();
        Activity { pod, began, ended }
    }

    /// Observes the pod until its limit holds it back: the machine's two CPUs may be busy
    /// with other work.
    pub(super) fn observe_capped(&mut self) -> Activity {
        let mut tries = (0..4).map(|_| self.observe());
        let capped = tries.find(Activity::is_capped);
        capped.expect("this machine lets the pod use what its limit allows")
    }
}

/// Threads named after the VMM that owns their device: kernel threads up to v6.3, threads
/// of the VMM since then (`drivers/vhost/vhost.c`).
fn vhost_workers(vmm: u32) -> Vec<(u32, i32)> {
    let name = format!("vhost-{vmm}");
    let own = process::tids(vmm).into_iter().map(|tid| (vmm, tid));
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    own.chain(pids.map(|pid| (pid, pid.cast_signed())))
        .filter(|(pid, tid)| process::comm(*pid, *tid).as_ref() == Some(&name))
        .collect()
}

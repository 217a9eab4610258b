//! A host whose files are missing, unreadable, truncated, garbage, endless or slow. Every
//! scrape is answered, each loss is counted, all values shown are correct, and everything
//! is complete again when the fault is over.

mod mix;
mod place;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, mpsc};

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_model::vocab::Role;
use virtlens_tests::exposed::Counters;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, cpu_ns, find, threads, vm};
use virtlens_tests::{
    Fault, FaultyHost, Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid,
};

use self::place::{Place, dir, file, links, list, maybe};

/// CPU quota of the pod, cores.
const QUOTA: f64 = 0.5;

/// Host files that every reading opens, with and without BPF.
const OF_THE_MACHINE: &[Place] = &[
    file("sys/devices/system/cpu/online"),
    maybe("sys/devices/system/cpu/*/topology/core_cpus_list"),
    maybe("sys/devices/system/cpu/*/topology/physical_package_id"),
    maybe("sys/devices/system/node/online"),
];

/// Files of a VM that are read only without BPF.
const WITHOUT_BPF: &[Place] = &[
    dir("proc/PID/fd"),
    links("proc/PID/fd/*"),
    file("proc/PID/stat"),
    dir("proc/PID/task"),
    file("proc/PID/task/*/stat"),
    maybe("proc/PID/task/*/schedstat"),
    file("proc/PID/task/*/cgroup"),
    file("proc/*/status"),
    file("proc/PID/comm"),
    dir("POD"),
    list("POD/tasks"),
    file("POD/cpu.stat"),
    maybe("POD/cpu.cfs_quota_us"),
    maybe("POD/cpu.cfs_period_us"),
    maybe("POD/cpu.cfs_burst_us"),
];

/// An agent on a host with injectable faults, and a VM under load.
struct Scene {
    collector: Collector,
    host: FaultyHost,
    guest: Minivm,
    // After the VM, because fields are dropped in order: the cgroup must be empty by
    // then.
    pod: TestCgroup,
    counters: Counters,
    last: Arc<Snapshot>,
}

impl Scene {
    fn new(with_bpf: bool) -> Self {
        let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        pod.set_quota(Some(50_000), 100_000);
        let args = ["--vcpus", "2", "--thread", "io=1", "--name", "steady"];
        let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
        let host = FaultyHost::mount();
        if !with_bpf {
            host.set(hide_btf);
        }
        let mut collector = open(host.path()).expect("nothing is wrong yet");
        host.heal();
        let inode = |dir: &Path| fs::metadata(dir).expect("it is there").ino();
        let shown = host
            .path()
            .join(pod.dir().strip_prefix("/").expect("it is absolute"));
        assert_eq!(inode(&shown), inode(pod.dir()), "the id of a cgroup");
        let mut scene = Self {
            last: collector.collect(),
            collector,
            host,
            guest,
            pod,
            counters: Counters::default(),
        };
        let snapshot = scene.read();
        let source = if with_bpf { "task_pass" } else { "proc" };
        let row = snapshot.sources.iter().find(|one| one.name == source);
        assert!(row.is_some_and(|row| row.up), "{:?}", snapshot.sources);
        scene.assert_whole(&snapshot);
        scene
    }

    /// Reads and judges the host; asserts that no counter falls.
    fn read(&mut self) -> Arc<Snapshot> {
        let snapshot = self.collector.collect_judged();
        self.counters.follow(&snapshot);
        self.last = Arc::clone(&snapshot);
        snapshot
    }

    /// Fails unless every value is present and correct.
    #[track_caller]
    fn assert_whole(&self, snapshot: &Snapshot) {
        let vm = vm(snapshot, self.guest.pid());
        assert!(vm.running, "{vm:?}");
        assert_eq!(threads(vm, Role::Vcpu), 2, "{vm:?}");
        assert_eq!(vm.quota.first().and_then(|level| level.cores), Some(QUOTA));
        assert!(vm.vcpus.iter().all(|vcpu| vcpu.wait_ns.is_some()), "{vm:?}");
        assert!(
            vm.vcpus.iter().all(|vcpu| vcpu.affinity.is_some()),
            "{vm:?}"
        );
        let topology = vm.topology.as_ref().expect("it was judged");
        assert!(topology.cpuset.is_some(), "{topology:?}");
        let source = |name| snapshot.sources.iter().find(|one| one.name == name);
        assert!(source("topology").expect("it has a row").up);
    }

    /// Fails if a value that is shown is wrong; values may be missing. `least` is from before
    /// the reading.
    #[track_caller]
    fn assert_honest(&self, vm: &Vm, least: &Times) {
        let reported = Times::shown(vm);
        let most = Times::of_kernel(&self.guest);
        assert!(
            (least.cpu_ns..=most.cpu_ns).contains(&reported.cpu_ns),
            "{} is not in {}..={}",
            reported.cpu_ns,
            least.cpu_ns,
            most.cpu_ns
        );
        for (tid, wait_ns) in reported.wait_ns {
            let least_ns = least.wait_ns.get(&tid).copied().unwrap_or(0);
            let most_ns = most.wait_ns[&tid];
            assert!(
                (least_ns..=most_ns).contains(&wait_ns),
                "thread {tid} waited {wait_ns}, not {least_ns}..={most_ns}"
            );
        }
        assert!(
            vm.quota.iter().all(|level| level.cores == Some(QUOTA)),
            "{:?}",
            vm.quota
        );
        let cpus = cpus();
        for vcpu in &vm.vcpus {
            assert!(
                vcpu.pcpu.is_none_or(|pcpu| (pcpu as usize) < cpus),
                "{vcpu:?}"
            );
            let mask = vcpu.affinity.as_ref().map(|mask| mask.len());
            assert!(mask.is_none_or(|mask| mask == cpus), "{vcpu:?}");
        }
    }

    /// The parts of the path of a place, below the root.
    fn pattern(&self, place: &Place) -> Vec<String> {
        let pod = self.pod.dir().strip_prefix("/").expect("it is absolute");
        let path = place.path.replace("PID", &self.guest.pid().to_string());
        let path = path.replace("POD", pod.to_str().expect("it is text"));
        path.split('/').map(str::to_owned).collect()
    }

    /// Breaks a place for one reading, and checks that reading and the next one.
    fn break_at(&mut self, place: &Place, fault: Fault) {
        let what = format!("{}, {fault:?}", place.path);
        println!("{what}");
        let before = Arc::clone(&self.last);
        let reported = Times::shown(vm(&before, self.guest.pid()));
        let pattern = self.pattern(place);
        // The topology of the CPUs is read again when this file changes.
        let mark = Path::new("sys/devices/system/cpu/smt/active");
        let is_of_cpus = place.path.starts_with("sys/");
        let (hits, hit) = mpsc::channel();
        self.host.set(move |path| {
            if is_of(&pattern, path) {
                hits.send(()).ok();
                return Some(fault);
            }
            (is_of_cpus && path == mark).then_some(Fault::Empty)
        });
        self.guest.burn_vcpus("all", 1);
        let during = self.read();
        self.host.heal();
        assert!(hit.try_recv().is_ok(), "{what}: it is not read");
        assert_eq!(during.node, before.node, "{what}");
        if let Some(vm) = find(&during, self.guest.pid()) {
            self.assert_honest(vm, &reported);
        }
        let low = Times::of_kernel(&self.guest);
        let after = self.read();
        self.assert_whole(&after);
        self.assert_honest(vm(&after, self.guest.pid()), &low);
        let is_lost = lost(&after) > lost(&before);
        let expected = place.kind.is_lost(fault).unwrap_or(is_lost);
        assert_eq!(is_lost, expected, "{what}: {:?}", after.dropped);
    }
}

/// Times of a VM's vCPUs.
struct Times {
    /// CPU time of all vCPUs, ns.
    cpu_ns: u64,
    /// Run delay by thread, ns. It is 0 if the thread never waited.
    wait_ns: BTreeMap<u32, u64>,
}

impl Times {
    fn shown(vm: &Vm) -> Self {
        let waits = vm.vcpus.iter();
        Self {
            cpu_ns: cpu_ns(vm, Role::Vcpu),
            wait_ns: waits
                .filter_map(|vcpu| vcpu.tid.zip(vcpu.wait_ns))
                .collect(),
        }
    }

    fn of_kernel(guest: &Minivm) -> Self {
        let vcpus = guest.ready.vcpus.iter().map(|vcpu| {
            let times = Schedstat::read(guest.pid(), vcpu.tid).expect("no vCPU ends here");
            (vcpu.tid.cast_unsigned(), times)
        });
        let times: Vec<_> = vcpus.collect();
        Self {
            cpu_ns: times.iter().map(|(_, times)| times.cpu_ns).sum(),
            wait_ns: times
                .iter()
                .map(|(tid, times)| (*tid, times.wait_ns))
                .collect(),
        }
    }
}

fn vcpus_ns(guest: &Minivm) -> u64 {
    Times::of_kernel(guest).cpu_ns
}

fn open(root: &Path) -> Result<Collector, String> {
    Collector::open(&Options {
        root: root.to_owned(),
        ..reader::options()
    })
    .map_err(|error| format!("{error:#}"))
}

/// Number of losses so far, for all reasons.
fn lost(snapshot: &Snapshot) -> u64 {
    snapshot.dropped.iter().map(|one| one.count).sum()
}

fn is_of(pattern: &[String], path: &Path) -> bool {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let same = |(wanted, part): (&String, _)| wanted == "*" || *wanted == part;
    parts.len() == pattern.len() && pattern.iter().zip(parts).all(same)
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::fuse(), need::cpu_cgroup()])
}

#[test]
fn machine_file_faults_with_bpf_do_not_break_readings() {
    if !ready("machine_file_faults_with_bpf_do_not_break_readings") {
        return;
    }
    let mut scene = Scene::new(true);
    for place in OF_THE_MACHINE {
        for fault in Fault::ALL {
            scene.break_at(place, fault);
        }
    }
}

#[test]
fn vm_file_faults_without_bpf_do_not_break_readings() {
    if !ready("vm_file_faults_without_bpf_do_not_break_readings") {
        return;
    }
    let mut scene = Scene::new(false);
    for place in WITHOUT_BPF.iter().chain(OF_THE_MACHINE) {
        for fault in Fault::ALL {
            scene.break_at(place, fault);
        }
    }
}

/// Files that are read when a VM is discovered.
const OF_A_NEW_VM: &[Place] = &[
    file("proc/PID/comm"),
    file("proc/PID/cmdline"),
    file("proc/PID/maps"),
];

/// A VM that cannot be identified is still a VM and has its numbers.
#[test]
fn unreadable_new_vm_with_bpf_is_measured() {
    if !ready("unreadable_new_vm_with_bpf_is_measured") {
        return;
    }
    let mut scene = Scene::new(true);
    let is_counted = |place: &Place, fault| {
        // Any bytes, even none, are a valid command line.
        let is_text = [Fault::Empty, Fault::Cut, Fault::Garbage, Fault::Endless].contains(&fault);
        place.path == "proc/PID/comm" || !is_text
    };
    // The location of RAM is read only while memory is followed.
    let memory = scene.last.sources.iter().find(|one| one.name == "memory");
    let is_followed = memory.is_some_and(|memory| memory.up);
    let is_asked = |place: &&Place| is_followed || place.path != "proc/PID/maps";
    if !is_followed {
        need::left_out("faults of proc/PID/maps", "memory is not followed here");
    }
    for place in OF_A_NEW_VM.iter().filter(is_asked) {
        for fault in Fault::ALL {
            let what = format!("{}, {fault:?}", place.path);
            println!("{what}");
            // VMs of one name would continue each other's counters.
            let name = format!("{}-{fault:?}", place.path.replace('/', "-"));
            let mut guest = Minivm::start(["--vcpus", "2", "--mem", "16M", "--name", &name]);
            guest.burn_vcpus("all", 2);
            let wanted = place.path.replace("PID", &guest.pid().to_string());
            let lost_before = lost(&scene.last);
            scene
                .host
                .set(move |path| (path == Path::new(&wanted)).then_some(fault));
            for reading in 0..3 {
                let low_ns = vcpus_ns(&guest);
                let snapshot = scene.read();
                let truth_ns = low_ns..=vcpus_ns(&guest);
                // The location of RAM is read once the VM is known to have any.
                if reading == 1 {
                    assert!(scene.host.heal() > 0, "{what}: it is not read");
                }
                // A living process is read again before its VM gets a lasting name.
                let is_asked_again = reading < 2 && is_counted(place, fault);
                let Some(met) = find(&snapshot, guest.pid()) else {
                    assert!(is_asked_again, "{what}: reading {reading} lacks it");
                    continue;
                };
                assert_eq!(threads(met, Role::Vcpu), 2, "{what}");
                let reported_ns = cpu_ns(met, Role::Vcpu);
                assert!(
                    truth_ns.contains(&reported_ns),
                    "{what}: {reported_ns} is not in {truth_ns:?}"
                );
                let own = vm(&snapshot, scene.guest.pid());
                assert_eq!(&*own.vm, "steady", "{what}");
            }
            let is_lost = lost(&scene.last) > lost_before;
            let expected = fault != Fault::Slow && is_counted(place, fault);
            assert_eq!(is_lost, expected, "{what}: {:?}", scene.last.dropped);
        }
    }
}

/// Files that are read once, when the agent starts.
const OF_THE_START: &[&str] = &[
    "proc",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/sys/kernel/hostname",
    "sys/devices/system/cpu/online",
];

/// The agent starts with fewer features or names the error; the next start succeeds.
#[test]
fn faults_at_start_are_reported() {
    if !ready("faults_at_start_are_reported") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "2", "--name", "early"]);
    let host = FaultyHost::mount();
    for wanted in OF_THE_START {
        // Each start scans all of /proc, so only some faults are tried.
        for fault in [Fault::Denied, Fault::Unreadable, Fault::Cut, Fault::Garbage] {
            host.set(move |path| hide_btf(path).or((path == Path::new(wanted)).then_some(fault)));
            match open(host.path()) {
                Ok(mut collector) => {
                    let snapshot = collector.collect();
                    assert_eq!(snapshot.node.cpus as usize, cpus(), "{wanted}, {fault:?}");
                    let seen = find(&snapshot, guest.pid());
                    let is_off = snapshot.sources.iter().any(|one| !one.up);
                    assert!(
                        seen.is_some() || is_off,
                        "{wanted}, {fault:?}: silently blind"
                    );
                }
                Err(error) => assert!(
                    error.contains("cannot read"),
                    "{wanted}, {fault:?}: {error}"
                ),
            }
            host.heal();
        }
    }
    let snapshot = open(host.path()).expect("nothing is wrong").collect();
    assert_eq!(threads(vm(&snapshot, guest.pid()), Role::Vcpu), 2);
}

fn hide_btf(path: &Path) -> Option<Fault> {
    path.starts_with("sys/kernel/btf").then_some(Fault::Missing)
}

fn cpus() -> usize {
    std::thread::available_parallelism()
        .expect("it is known")
        .get()
}

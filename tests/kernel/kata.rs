//! Kata's pods in the cgroup layouts of Kata 4.1, on this kernel: their limits, the
//! threads outside of their pod, the findings and the remedies.
//!
//! | runtime, driver, `sandbox_cgroup_only` | VMM | shim, virtiofsd |
//! |---|---|---|
//! | Go, systemd, true | the pod's slice, a scope | same |
//! | Go, systemd, false | a directory at the top with the scope's name | `kata_overhead/<id>` |
//! | Go, cgroupfs, true | `pod<uid>/kata_<id>` | same |
//! | Go, cgroupfs, false | `pod<uid>/kata_<id>` | `kata_overhead/<id>` |
//! | runtime-rs, systemd, true | the pod's slice, a scope | same |
//! | runtime-rs, systemd, false | the pod's slice, a scope | `kata.slice/kata-overhead.slice/…` |
//! | Dragonball, systemd | the pod's slice, a scope | none: one process |
//!
//! `kata_ctr.rs` has the row of a sandbox without a pod.
//!
//! The VMM is a minivm, and so are its helpers, without a vCPU; threads are named as
//! those of the originals. Not every host has vhost: tests/scenario covers it.

use std::time::{Duration, Instant};

use virtlens::collect::Collector;
use virtlens_model::snapshot::{Finding, Vm};
use virtlens_model::vocab::{Role, Scope};
use virtlens_tests::reader::{self, find, threads, vm};
use virtlens_tests::{
    Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, systemd_pod_path, unique_pod_uid,
};

/// The limit of each pod, well below the CPU time that a busy machine leaves to its
/// vCPUs.
const QUOTA_US: u64 = 20_000;
const PERIOD_US: u64 = 100_000;

/// The checks that these tests assert; other findings depend on the machine's load.
const CHECKS: [&str; 4] = [
    "limit_without_vm",
    "quota_capped",
    "threads_outside_pod",
    "vcpus_exceed_quota",
];

#[derive(Clone, Copy, PartialEq)]
enum Shim {
    Go,
    Rs,
    Dragonball,
}

/// One row of the table.
struct Shape {
    shim: Shim,
    /// Cgroup with the limit, relative to the mount.
    pod: String,
    vmm: String,
    /// Cgroup of shim and virtiofsd; `None` if they share the VMM's.
    overhead: Option<String>,
    uid: String,
    id: String,
}

impl Shape {
    fn new(shim: Shim, pod_path: fn(&str) -> String, below: &str, overhead: Option<&str>) -> Self {
        let uid = unique_pod_uid();
        let id = uid.replace('-', "").repeat(2);
        let fill = |text: &str| text.replace("{id}", &id);
        let pod = pod_path(&uid);
        Self {
            shim,
            vmm: fill(&format!("{pod}/{below}")),
            overhead: overhead.map(fill),
            pod,
            uid,
            id,
        }
    }
}

/// A running pod. Its processes are dropped before its cgroups.
struct Pod {
    vmm: Minivm,
    virtiofsd: Option<Minivm>,
    _shim: Option<Minivm>,
    collector: Collector,
    _cgroups: Vec<TestCgroup>,
}

fn process(comm: &str, names: &[&str], cgroup: &TestCgroup) -> Minivm {
    let mut launch = Minivm::launch().args(["--vcpus", "0", "--comm", comm]);
    for name in names {
        launch = launch.args(["--thread", name]);
    }
    Minivm::start_launch(launch.cgroup(cgroup))
}

impl Pod {
    /// Starts the pod as Kata does: the VMM boots in the cgroup of its helpers and is
    /// moved afterwards.
    fn start(shape: &Shape) -> Self {
        let pod = TestCgroup::new(&shape.pod);
        pod.set_quota(Some(QUOTA_US), PERIOD_US);
        let vmm_cgroup = TestCgroup::new(&shape.vmm);
        let overhead = shape.overhead.as_deref().map(TestCgroup::new);
        let first = overhead.as_ref().unwrap_or(&vmm_cgroup);
        let vmm = vmm(shape, first);
        let has_helpers = shape.shim != Shim::Dragonball;
        let names = ["virtiofsd=2", "vring_worker=1", "virtiofsd-backend=1"];
        let virtiofsd = has_helpers.then(|| process("virtiofsd", &names, first));
        let shim = has_helpers.then(|| process("containerd-shim", shim_threads(shape.shim), first));
        let mut collector = reader::collector();
        eventually("the agent to find the VM", || {
            find(&collector.collect(), vmm.pid()).map(|_| ())
        });
        vmm_cgroup.add_process(vmm.pid());
        Self {
            vmm,
            virtiofsd,
            _shim: shim,
            collector,
            _cgroups: overhead.into_iter().chain([vmm_cgroup, pod]).collect(),
        }
    }

    /// Returns the VM once its findings among [`CHECKS`] are exactly `expected`, while
    /// vCPUs and virtiofsd use all the CPU time they can get.
    fn found(&mut self, expected: &[&str]) -> Vm {
        self.vmm.command("spin all");
        self.collector.collect_judged();
        let pid = self.vmm.pid();
        eventually(&format!("{expected:?} to be found"), || {
            match &mut self.virtiofsd {
                Some(virtiofsd) => drop(virtiofsd.burn_threads("0", 300)),
                None => std::thread::sleep(Duration::from_secs(1)),
            }
            let vm = vm(&self.collector.collect_judged(), pid).clone();
            let found = vm.findings.as_deref().unwrap_or_default();
            let mut names: Vec<&str> = found.iter().map(|one| one.check.name()).collect();
            names.retain(|name| CHECKS.contains(name));
            names.sort_unstable();
            println!("{names:?}");
            (names == expected).then_some(vm)
        })
    }
}

fn vmm(shape: &Shape, cgroup: &TestCgroup) -> Minivm {
    let launch = Minivm::launch().cgroup(cgroup);
    let name = format!("sandbox-{}", shape.id);
    let launch = match shape.shim {
        Shim::Dragonball => launch
            .arg0("/opt/kata/runtime-rs/bin/containerd-shim-kata-v2")
            .args(["--comm", "containerd-shim"])
            .args(["--vcpus", "1", "--vcpu-name", "db_vcpu{}"])
            .args(["--thread", "vmm_master=1", "--thread", "virtiofs-thread=1"]),
        // The Go runtime boots default_vcpus and hot-plugs one vCPU for the limit.
        Shim::Go => launch
            .arg0("/usr/bin/qemu-system-x86_64")
            .args(["--name", &name, "--smp", "1", "--vcpus", "2"])
            .args(["--comm", "qemu-system-x86", "--vcpu-name", "same"])
            .args(["--thread", "qemu-system-x86=2"]),
        Shim::Rs => launch
            .arg0("/usr/bin/qemu-system-x86_64")
            .args(["--name", &name, "--smp", "1", "--vcpus", "1"])
            .args(["--comm", "qemu-system-x86", "--vcpu-name", "same"])
            .args(["--thread", "qemu-system-x86=2"]),
    };
    Minivm::start_launch(launch)
}

fn shim_threads(shim: Shim) -> &'static [&'static str] {
    match shim {
        Shim::Go | Shim::Dragonball => &["containerd-shim=9"],
        Shim::Rs => &["tokio-rt-worker=3", "slog-async-logger=1", "async-io=1"],
    }
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup()])
}

/// Asserts the facts that all shapes share: owner, roles, and the roles outside of the
/// pod.
#[track_caller]
fn assert_seen(vm: &Vm, shape: &Shape, layout: &str, outside: &[Role]) {
    assert_eq!(vm.uid.as_deref(), Some(&*shape.uid));
    assert_eq!((vm.runtime, vm.cgroup_layout), (Some("kata"), Some(layout)));
    for role in &vm.roles {
        let expected = if outside.contains(&role.role) {
            role.threads
        } else {
            0
        };
        assert_eq!(role.outside_pod, Some(expected), "{role:?}");
    }
    let vcpus = if shape.shim == Shim::Go { 2 } else { 1 };
    assert_eq!(threads(vm, Role::Vcpu), vcpus);
    if shape.shim == Shim::Dragonball {
        assert_eq!(threads(vm, Role::Iothread), 1, "the virtio-fs worker");
    } else {
        assert_eq!(threads(vm, Role::Virtiofsd), 5);
        assert!(threads(vm, Role::Helper) >= 6, "{:?}", vm.threads);
    }
}

/// Scope and quota of each limit that the VM shows.
fn limits(vm: &Vm) -> Vec<(Scope, f64)> {
    let limits = vm.limits.iter();
    limits
        .filter_map(|one| Some((one.scope, one.cores?)))
        .collect()
}

#[track_caller]
fn remedy<'v>(vm: &'v Vm, check: &str) -> &'v str {
    let found: &'v [Finding] = vm.findings.as_deref().expect("it was judged");
    let one = found.iter().find(|one| one.check.name() == check);
    &one.unwrap_or_else(|| panic!("no {check}: {found:?}"))
        .remedy
}

const HELPERS: [Role; 2] = [Role::Virtiofsd, Role::Helper];
const POD_LIMIT: [(Scope, f64); 1] = [(Scope::Pod, 0.2)];
const SCOPE: &str = "cri-containerd-{id}.scope";

#[test]
fn go_in_pod_is_capped_by_its_limit() {
    if !ready("go_in_pod_is_capped_by_its_limit") {
        return;
    }
    let systemd = Shape::new(Shim::Go, systemd_pod_path, SCOPE, None);
    let cgroupfs = Shape::new(Shim::Go, cgroupfs_pod_path, "kata_{id}", None);
    for shape in [systemd, cgroupfs] {
        let vm = Pod::start(&shape).found(&["quota_capped", "vcpus_exceed_quota"]);
        assert_seen(&vm, &shape, "pod", &[]);
        assert_eq!(limits(&vm), POD_LIMIT);
        // Virtiofsd uses part of the limit.
        assert!(remedy(&vm, "quota_capped").contains("resources.limits.cpu"));
        assert!(remedy(&vm, "vcpus_exceed_quota").starts_with("set default_vcpus=0.8 "));
    }
}

#[test]
fn go_systemd_split_vm_escapes_its_limit() {
    if !ready("go_systemd_split_vm_escapes_its_limit") {
        return;
    }
    let mut shape = Shape::new(
        Shim::Go,
        systemd_pod_path,
        SCOPE,
        Some("kata_overhead/{id}"),
    );
    let slice = shape.pod.rsplit('/').next().expect("a slice");
    shape.vmm = format!("{slice}:cri-containerd:{}", shape.id);
    let mut pod = Pod::start(&shape);
    let vm = pod.found(&["limit_without_vm"]);
    assert_seen(&vm, &shape, "stray", &Role::ALL);
    assert_eq!(limits(&vm), []);
    let unapplied = vm.unapplied_limit.as_ref().expect("the pod has a limit");
    assert_eq!(*unapplied.cgroup, format!("/{}", shape.pod));
    assert!((unapplied.cores - 0.2).abs() < 1e-9, "{unapplied:?}");
    assert!(remedy(&vm, "limit_without_vm").contains("sandbox_cgroup_only=true"));
    // The layout once that setting is made.
    let scope = TestCgroup::new(&format!(
        "{}/{}",
        shape.pod,
        SCOPE.replace("{id}", &shape.id)
    ));
    scope.add_process(pod.vmm.pid());
    let snapshot = pod.collector.collect();
    let moved = reader::vm(&snapshot, pod.vmm.pid());
    assert_eq!(limits(moved), POD_LIMIT);
    assert!(moved.unapplied_limit.is_none());
    drop(pod);
    drop(scope);
}

#[test]
fn helpers_in_overhead_cgroup_are_outside() {
    if !ready("helpers_in_overhead_cgroup_are_outside") {
        return;
    }
    let go = Shape::new(
        Shim::Go,
        cgroupfs_pod_path,
        "kata_{id}",
        Some("kata_overhead/{id}"),
    );
    let rs = Shape::new(
        Shim::Rs,
        systemd_pod_path,
        SCOPE,
        Some("kata.slice/kata-overhead.slice/runtime-rs-{id}.scope"),
    );
    for shape in [go, rs] {
        let exceeds = (shape.shim == Shim::Go).then_some("vcpus_exceed_quota");
        let both = ["quota_capped", "threads_outside_pod"];
        let expected: Vec<&str> = both.into_iter().chain(exceeds).collect();
        let vm = Pod::start(&shape).found(&expected);
        assert_seen(&vm, &shape, "split", &HELPERS);
        assert_eq!(limits(&vm), POD_LIMIT);
        // The vCPUs have the whole limit for themselves.
        let capped = remedy(&vm, "quota_capped");
        assert_eq!(capped, "raise resources.limits.cpu of the pod's containers");
        let outside = remedy(&vm, "threads_outside_pod");
        assert!(
            outside.starts_with("set sandbox_cgroup_only=true"),
            "{outside}"
        );
        for one in vm.findings.iter().flat_map(|found| found.iter()) {
            assert!(!one.remedy.contains("sandbox_cgroup_only=false"), "{one:?}");
        }
    }
}

#[test]
fn runtime_rs_in_pod_is_capped_by_its_limit() {
    if !ready("runtime_rs_in_pod_is_capped_by_its_limit") {
        return;
    }
    let shape = Shape::new(Shim::Rs, systemd_pod_path, SCOPE, None);
    let vm = Pod::start(&shape).found(&["quota_capped"]);
    assert_seen(&vm, &shape, "pod", &[]);
    assert_eq!(limits(&vm), POD_LIMIT);
    // Virtiofsd uses part of the limit.
    let capped = remedy(&vm, "quota_capped");
    assert!(capped.contains("resources.limits.cpu"), "{capped}");
    assert!(!capped.contains("sandbox_cgroup_only=false"), "{capped}");
}

#[test]
fn dragonball_is_one_process_with_its_virtiofs_worker() {
    if !ready("dragonball_is_one_process_with_its_virtiofs_worker") {
        return;
    }
    let shape = Shape::new(Shim::Dragonball, systemd_pod_path, SCOPE, None);
    let vm = Pod::start(&shape).found(&["quota_capped"]);
    assert_eq!(vm.vmm, "dragonball");
    assert_seen(&vm, &shape, "pod", &[]);
    assert_eq!(limits(&vm), POD_LIMIT);
    let raise = "raise resources.limits.cpu of the pod's containers";
    assert_eq!(remedy(&vm, "quota_capped"), raise);
}

/// A single vCPU is throttled for at most the time that its limit leaves, a fifth.
#[test]
fn only_vcpu_at_its_limit_is_capped() {
    if !ready("only_vcpu_at_its_limit_is_capped") {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(80_000), PERIOD_US);
    let args = ["--vcpus", "1", "--start", "spin"];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    let mut collector = reader::collector();
    // If the machine gives the vCPU less than its limit, the limit does not bind: retry.
    let vm = eventually("the limit to hold it back", || {
        collector.collect_judged();
        let (began, then) = (Instant::now(), pod.throttling());
        let used_then = pod.usage_ns();
        std::thread::sleep(Duration::from_secs(2));
        let (took, now) = (began.elapsed(), pod.throttling());
        let used = Duration::from_nanos(pod.usage_ns() - used_then).div_duration_f64(took);
        let vm = vm(&collector.collect_judged(), guest.pid()).clone();
        let periods = now.periods - then.periods;
        let throttled = now.throttled_periods - then.throttled_periods;
        println!("by the kernel: {used:.3} cores, {throttled} of {periods} periods");
        (used > 0.76 && throttled * 3 > periods).then_some(vm)
    });
    let found = vm.findings.as_deref().expect("it was judged");
    let names: Vec<&str> = found.iter().map(|one| one.check.name()).collect();
    // Other load on this machine may starve the vCPU as well.
    assert!(names.contains(&"quota_capped"), "{found:#?}");
}

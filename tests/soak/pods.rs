//! A node full of Kata's pods, some of which have a VM.

use std::time::Instant;

use virtlens_tests::reader;
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::watched::{DRIFT_NS, Watched};

/// Pods on the node.
const PODS: u32 = 1000;

/// One pod in this many has a VM.
const ONE_IN: u32 = 50;

/// Cgroups of a pod: its own, its sandbox's and two containers'. Its processes are
/// dropped first.
struct Pod {
    vm: Option<Minivm>,
    _containers: [TestCgroup; 3],
    own: TestCgroup,
}

impl Pod {
    fn new(number: u32) -> Self {
        let own = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
        own.set_quota(Some(quota_us(number).into()), 100_000);
        let containers = ["ab", "cd", "ef"].map(|id| own.child(&id.repeat(32)));
        let name = format!("pod-{number}");
        let vm = number.is_multiple_of(ONE_IN).then(|| {
            let args = ["--vcpus", "1", "--start", "duty:2", "--name", &name];
            Minivm::start_launch(Minivm::launch().args(args).cgroup(&containers[0]))
        });
        Self {
            vm,
            _containers: containers,
            own,
        }
    }
}

/// A distinct quota per pod, µs.
fn quota_us(number: u32) -> u32 {
    50_000 + 10 * number
}

#[test]
fn thousand_pods_are_read_like_one() {
    let test = "thousand_pods_are_read_like_one";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let mut watched = Watched::start();
    watched.work();
    let before = watched.state();
    println!("before: {before}");
    let pods: Vec<Pod> = (0..PODS).map(Pod::new).collect();
    let vms = PODS / ONE_IN;
    let mut levels = Vec::new();
    for _ in 0..20 {
        watched.work();
        let began = Instant::now();
        let state = watched.state();
        println!("after {} ms: {state}", began.elapsed().as_millis());
        assert!(state.drift_ns.unsigned_abs() <= DRIFT_NS, "{state}");
        assert!(!state.has_failed, "{state}");
        // 1 MiB for the series of each ten VMs.
        let most = before.resident_bytes * 1.1 + 1_048_576.0 * (f64::from(vms) / 10.0);
        assert!(state.resident_bytes <= most, "{before}; {state}");
        levels.push(state.entries["levels"]);
    }
    // Limits are followed only for cgroups with a VM.
    let each = 5.0;
    assert!(
        levels
            .iter()
            .all(|all| *all <= before.entries["levels"] + each * f64::from(vms)),
        "{levels:?}"
    );

    let snapshot = reader::collector().collect();
    let mut met = 0;
    for (number, pod) in (0..).zip(&pods) {
        let Some(guest) = &pod.vm else { continue };
        let vm = reader::vm(&snapshot, guest.pid());
        assert_eq!(vm.vm.as_ref(), format!("pod-{number}"));
        let own = vm
            .quota
            .iter()
            .find(|level| level.cgroup.as_ref() == pod.own.path());
        let cores = own
            .and_then(|level| level.cores)
            .expect("its pod has a limit");
        assert!(
            (cores - f64::from(quota_us(number)) / 100_000.0).abs() < 1e-9,
            "{vm:?}"
        );
        met += 1;
    }
    assert_eq!(met, vms);
    drop(pods);
    watched.work();
    let after = watched.state();
    println!("after: {after}");
    assert!(after.drift_ns.unsigned_abs() <= DRIFT_NS, "{after}");
}

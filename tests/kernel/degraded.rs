//! Features that remain on kernels that lack some interfaces.

use std::path::Path;
use std::sync::Arc;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Quota, Snapshot};
use virtlens_model::vocab::Role;
use virtlens_tests::reader::{self, cpu_ns, host_with, threads, vm};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

fn read(root: &Path) -> Arc<Snapshot> {
    let options = Options {
        root: root.to_owned(),
        ..reader::options()
    };
    Collector::open(&options).expect("/proc is there").collect()
}

/// Without BTF there is no BPF; the agent falls back to /proc and thread names.
#[test]
fn vm_without_btf_is_read_from_proc() {
    if !reader::ready("vm_without_btf_is_read_from_proc") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--name", "plain"]);
    let burned = guest.burn_vcpus("all", 53);
    let root = host_with(&["sys/devices", "sys/fs/cgroup"]);
    let snapshot = read(root.path());
    let source = |name| {
        snapshot
            .sources
            .iter()
            .find(|one| one.name == name)
            .expect(name)
    };
    assert!(!source("task_pass").up && source("task_pass").reason.contains("BTF"));
    assert!(source("proc").up);
    let vm = vm(&snapshot, guest.pid());
    assert_eq!((&*vm.vm, threads(vm, Role::Vcpu)), ("plain", 2));
    let expected: u64 = burned.iter().map(|one| one.cpu_ns).sum();
    reader::assert_close(
        "from /proc",
        cpu_ns(vm, Role::Vcpu),
        expected,
        2 * reader::MS,
    );
    assert!(
        vm.vcpus.iter().all(|vcpu| vcpu.kvm.exits().is_none()),
        "unknown is absent"
    );
}

/// Throttling on kernels with and without fentry programs: the values that are present
/// are correct, and missing ones are named as absent.
#[test]
fn throttling_is_tracked_or_reported_off() {
    let ready = reader::ready("throttling_is_tracked_or_reported_off");
    if !ready
        || !need::all(
            "throttling_is_tracked_or_reported_off",
            [need::cpu_cgroup()],
        )
    {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(30_000), 100_000);
    let args = ["--vcpus", "1", "--name", "capped"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    let mut collector = reader::collector();
    let first = collector.collect();
    guest.burn_vcpus("all", 150);
    // Threads that have exited by the next reading.
    guest.spawn(3, 5, "gone");
    let last = collector.collect();
    let level = |snapshot: &Snapshot| vm(snapshot, guest.pid()).quota[0].clone();
    let (low, high) = (level(&first), level(&last));
    assert!(high.throttled_periods > low.throttled_periods, "{high:?}");
    for role in [Role::Vcpu, Role::Emulator] {
        let used = |quota: &Quota| quota.used_ns.get(&role).copied().unwrap_or(0);
        let cpu = |snapshot| cpu_ns(vm(snapshot, guest.pid()), role);
        let (used, cpu) = (used(&high) - used(&low), cpu(&last) - cpu(&first));
        assert_eq!(used, cpu, "all of {} sits in the pod", role.name());
        assert!(cpu > 10 * reader::MS, "{}: {cpu} ns", role.name());
    }
    let source = last.sources.iter().find(|one| one.name == "throttle");
    let source = source.expect("it has a row");
    let hits = vm(&last, guest.pid()).roles[0].throttle_hits;
    if source.up {
        let seen = high.throttle.expect("it is followed");
        assert_eq!(
            seen.unthrottles.sum_ns,
            high.throttled_ns - low.throttled_ns
        );
        assert!(hits.is_some_and(|hits| hits > 0));
    } else {
        assert!(source.reason.contains("fentry"), "{source:?}");
        assert_eq!((high.throttle, hits), (None, None), "unknown is absent");
    }
}

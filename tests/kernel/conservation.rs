//! All CPU time of a pod is counted, and none of it twice.

use std::thread::sleep;
use std::time::Duration;

use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_tests::reader::{self, MS, all_ns, assert_close, cpu_ns, vm};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, systemd_pod_path,
    unique_pod_uid,
};

/// A process of the pod that is not a VM; it spins half of the time.
fn helper(cgroup: &TestCgroup) -> std::process::Child {
    let script = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.02; done";
    Launch::new("sh")
        .args(["-c", script])
        .cgroup(cgroup)
        .spawn()
}

/// For ten seconds under load, while threads and processes start and end, the sum of the
/// roles equals the kernel's charge to the pod's cgroup.
#[test]
fn sum_of_roles_equals_pod_cgroup_usage() {
    if !reader::ready("sum_of_roles_equals_pod_cgroup_usage")
        || !need::all("sum_of_roles_equals_pod_cgroup_usage", [need::cpu_cgroup()])
    {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let (main, side) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
    let args = [
        "--vcpus", "2", "--start", "duty:60", "--thread", "io=2", "--name", "churn",
    ];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&main));
    let mut shell = helper(&side);
    let mut collector = reader::collector();

    let first = collector.collect();
    let used_before = pod.usage_ns();
    for _ in 0..10 {
        sleep(Duration::from_millis(700));
        let burned = guest.spawn(5, 20, "worker");
        assert!(burned >= 100 * MS, "the threads burned");
    }
    let last = collector.collect();
    let used = pod.usage_ns() - used_before;
    shell
        .kill()
        .and_then(|()| shell.wait())
        .expect("the shell runs");

    let (first, last) = (vm(&first, guest.pid()), vm(&last, guest.pid()));
    let shown = all_ns(last) - all_ns(first);
    assert_close("the pod", shown, used, (used / 200).max(20 * MS));
    let unattributed = last.unattributed_cpu_ns - first.unattributed_cpu_ns;
    assert!(
        unattributed * 200 < used,
        "{unattributed} of {used} ns have no role"
    );
    assert!(
        cpu_ns(last, Role::Helper) > cpu_ns(first, Role::Helper),
        "the shell is a helper"
    );
}

/// A process that exited before the agent started is reported while it is a zombie, and
/// its CPU time is kept after it is reaped.
#[test]
fn unseen_exited_process_is_counted_when_freed() {
    if !reader::ready("unseen_exited_process_is_counted_when_freed")
        || !need::all(
            "unseen_exited_process_is_counted_when_freed",
            [need::cpu_cgroup()],
        )
    {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let (main, side) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
    let guest = Minivm::start_launch(Minivm::launch().args(["--vcpus", "1"]).cgroup(&main));
    let burn = || {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let burn = Launch::new("sh").args(["-c", script]).cgroup(&side).spawn();
        eventually("it exits", || has_exited(burn.id()).then_some(()));
        burn
    };
    let mut unseen = burn();
    let unseen_ns = side.usage_ns();
    let mut collector = reader::collector();
    let first = collector.collect();
    unseen.wait().expect("it is reaped");
    burn().wait().expect("it is reaped");
    let helpers = |one: &Snapshot| cpu_ns(vm(one, guest.pid()), Role::Helper);
    assert_close("a zombie", helpers(&first), unseen_ns, 20 * MS);
    reader::assert_settles(&mut collector, "both", side.usage_ns(), 20 * MS, helpers);
}

/// Whether a process is a zombie (`proc_pid_stat(5)`).
fn has_exited(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody reaps it");
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Quota and throttling of every level equal those in the cgroup's files.
#[test]
fn quota_and_throttling_equal_cgroup_files() {
    if !reader::ready("quota_and_throttling_equal_cgroup_files")
        || !need::all(
            "quota_and_throttling_equal_cgroup_files",
            [need::cpu_cgroup()],
        )
    {
        return;
    }
    let pod = TestCgroup::new(&systemd_pod_path(&unique_pod_uid()));
    let container = pod.child(&format!("cri-containerd-{}.scope", "ef".repeat(32)));
    pod.set_quota(Some(40_000), 100_000);
    container.set_quota(Some(17_000), 50_000);
    let args = ["--vcpus", "2", "--start", "spin"];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    let mut collector = reader::collector();
    // The pod's limit is higher, so only the container's quota has to be exhausted.
    eventually("the container is throttled", || {
        (container.throttling().throttled_periods > 3).then_some(())
    });
    let before = [pod.throttling(), container.throttling()];
    let snapshot = collector.collect();
    let after = [pod.throttling(), container.throttling()];

    let quota = &vm(&snapshot, guest.pid()).quota;
    let scopes: Vec<_> = quota
        .iter()
        .map(|one| (one.scope.name(), one.cores, one.period_ns))
        .collect();
    assert_eq!(
        scopes,
        [
            ("pod", Some(0.4), 100_000_000),
            ("container", Some(0.34), 50_000_000)
        ],
    );
    for (seen, (low, high)) in quota.iter().zip(before.iter().zip(&after)) {
        assert!(
            (low.periods..=high.periods).contains(&seen.periods),
            "{seen:?}"
        );
        let throttled = low.throttled_periods..=high.throttled_periods;
        assert!(
            throttled.contains(&seen.throttled_periods),
            "{seen:?} {throttled:?}"
        );
        assert!(
            (low.throttled_ns..=high.throttled_ns).contains(&seen.throttled_ns),
            "{seen:?}"
        );
    }
    assert!(
        quota[1].throttled_periods > 0,
        "two spinning vCPUs on 0.34 cores are throttled"
    );
}

//! Checks the cgroups that suites use for pods, with a VM that runs in one.

use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, process};
use virtlens_tests::{systemd_pod_path, unique_pod_uid};

#[test]
fn vm_in_pod_is_charged_and_throttled_and_cleaned_up() {
    let test = "vm_in_pod_is_charged_and_throttled_and_cleaned_up";
    if !need::all(test, [need::root(), need::kvm(), need::cpu_cgroup()]) {
        return;
    }
    for path in [cgroupfs_pod_path, systemd_pod_path] {
        let pod = TestCgroup::new(&path(&unique_pod_uid()));
        let container = pod.child("cri-containerd-0123abcd.scope");
        let mut vm = Minivm::start_launch(Minivm::launch().cgroup(&container));
        let shown = std::fs::read_to_string(format!("/proc/{}/cgroup", vm.pid()));
        assert!(shown.expect("minivm lives").contains(&container.path()));

        let before_ns = pod.usage_ns();
        let burned_ns = vm.burn_vcpus("all", 53)[0].burned_ns;
        assert!(pod.usage_ns() >= before_ns + burned_ns);
        assert_eq!(pod.throttling().throttled_periods, 0);

        pod.set_quota(Some(2_000), 20_000);
        vm.command("spin all");
        eventually("throttling", || {
            Some(pod.throttling()).filter(|now| now.throttled_periods >= 3 && now.throttled_ns > 0)
        });
        assert_eq!(
            container.throttling().throttled_periods,
            0,
            "only the level with the quota"
        );
        // The two are read one after the other, so a period that begins between them
        // would make them inconsistent.
        pod.set_quota(None, 20_000);
        let throttled = pod.throttling();
        assert!(throttled.periods >= throttled.throttled_periods);

        let pid = vm.pid();
        drop(vm);
        assert!(process::tids(pid).is_empty());
        let dir = pod.dir().to_owned();
        drop((pod, container));
        assert!(!dir.exists(), "{} is left", dir.display());
    }
}

#[test]
fn process_and_thread_move_into_cgroup() {
    let test = "process_and_thread_move_into_cgroup";
    if !need::all(test, [need::root(), need::kvm(), need::cpu_cgroup()]) {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let (all, vcpus) = (pod.child("sandbox"), pod.child("vcpus"));
    let mut vm = Minivm::start(["--vcpus", "1"]);
    let of = |pid: u32, tid: i32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).expect("it lives")
    };
    let (pid, tid) = (vm.pid(), vm.ready.vcpus[0].tid);
    all.add_process(pid);
    assert!(of(pid, tid).contains(&all.path()));
    if pod.is_v1() {
        vcpus.add_thread(tid);
        assert!(of(pid, tid).contains(&vcpus.path()));
        let before_ns = vcpus.usage_ns();
        let burned_ns = vm.burn_vcpus("all", 20)[0].burned_ns;
        assert!(vcpus.usage_ns() >= before_ns + burned_ns);
    }
    drop(vm);
}

//! Each kind of verdict on a VM that is pinned wrongly, and none on the same VM pinned
//! correctly.

use virtlens_model::vocab::MismatchKind::{
    HelperOnVcpu, LlcSplit, NumaSplit, RemoteMemory, SmtShared, SmtSplit, VcpuOverlap,
};
use virtlens_tests::process::set_affinity;
use virtlens_tests::seats::{
    Finding, agent, assert_found, assert_judged, judged, pin, pinned, pinned_launch, topology,
};
use virtlens_tests::{Minivm, TestCgroup, reader, systemd_pod_path, unique_pod_uid};

/// A VM pinned wrongly, then pinned correctly.
struct Case {
    topology: &'static str,
    wrong: &'static [usize],
    found: &'static [Finding<'static>],
    right: &'static [usize],
}

#[test]
fn wrong_pin_is_found_and_correct_pin_is_not() {
    let cases = [
        Case {
            topology: "threads=2",
            wrong: &[0, 2],
            found: &[(SmtSplit, &[0, 1], "0,2")],
            right: &[0, 1],
        },
        Case {
            topology: "cores=2",
            wrong: &[0, 1],
            found: &[(SmtShared, &[0, 1], "0-1")],
            right: &[0, 2],
        },
        Case {
            topology: "cores=2",
            wrong: &[2, 2],
            found: &[(VcpuOverlap, &[0, 1], "2")],
            right: &[2, 0],
        },
        Case {
            topology: "cores=2",
            wrong: &[0, 8],
            found: &[(NumaSplit, &[0, 1], "0,8")],
            right: &[8, 10],
        },
        Case {
            topology: "cores=2",
            wrong: &[0, 4],
            found: &[(LlcSplit, &[0, 1], "0,4")],
            right: &[4, 6],
        },
        // Wider topologies for which the same pins are correct.
        Case {
            topology: "cores=4,threads=1",
            wrong: &[0, 2, 4, 8],
            found: &[(NumaSplit, &[0, 1, 2, 3], "0,2,4,8")],
            right: &[0, 2, 4, 6],
        },
        Case {
            topology: "dies=2,cores=2",
            wrong: &[0, 4, 2, 6],
            found: &[(LlcSplit, &[0, 1], "0,4"), (LlcSplit, &[2, 3], "2,6")],
            right: &[0, 2, 4, 6],
        },
    ];
    let mut agent = agent();
    for case in cases {
        let vm = pinned(case.topology, case.wrong);
        assert_judged(&mut agent, &vm, case.found);
        pin(&vm, case.right);
        assert_judged(&mut agent, &vm, &[]);
    }
}

#[test]
fn vcpus_of_two_vms_on_one_pcpu_are_found_in_both() {
    let one = pinned("cores=2", &[4, 6]);
    let two = pinned("cores=2", &[6, 4]);
    let mut agent = agent();
    assert_judged(
        &mut agent,
        &one,
        &[(VcpuOverlap, &[0], "4"), (VcpuOverlap, &[1], "6")],
    );
    let found = assert_judged(
        &mut agent,
        &two,
        &[(VcpuOverlap, &[1], "4"), (VcpuOverlap, &[0], "6")],
    );
    let snapshot = agent.collect();
    let other = &*reader::vm(&snapshot, one.pid()).vm;
    let evidence = &found.mismatches[0].mismatch.evidence;
    assert!(evidence.contains(other), "{evidence}");
    pin(&two, &[0, 2]);
    assert_judged(&mut agent, &one, &[]);
    assert_judged(&mut agent, &two, &[]);
}

#[test]
fn helper_on_pcpu_of_pinned_vcpu_is_found() {
    let launch = Minivm::launch().args(["--vcpus", "1", "--thread", "IO io0=1"]);
    let vm = pinned_launch(launch, &[4]);
    let helper = vm.ready.threads[0].tid;
    let mut agent = agent();
    set_affinity(helper, &[4, 5]);
    let found = assert_judged(&mut agent, &vm, &[(HelperOnVcpu, &[0], "4")]);
    let evidence = &found.mismatches[0].mismatch.evidence;
    assert!(evidence.contains("IO io0"), "{evidence}");
    set_affinity(helper, &[5]);
    assert_judged(&mut agent, &vm, &[]);
}

/// The vCPU runs on node 0, and its memory may only come from node 1.
#[test]
fn memory_on_another_node_is_found() {
    let pod = systemd_pod_path(&unique_pod_uid());
    let cgroup = TestCgroup::new(&format!("{pod}/cri-containerd-{}.scope", "d4".repeat(32)));
    cgroup.enable(&["cpuset", "memory"]);
    cgroup.set("cpuset.mems", "1");
    let launch = Minivm::launch().args(["--vcpus", "1", "--mem", "64M"]);
    let mut vm = pinned_launch(launch.cgroup(&cgroup), &[0]);
    vm.command(&format!("touch 0 {}", 64 << 20));
    let mut agent = agent();
    let found = assert_judged(&mut agent, &vm, &[(RemoteMemory, &[0], "0")]);
    let evidence = &found.mismatches[0].mismatch.evidence;
    assert!(evidence.contains("on NUMA nodes 1"), "{evidence}");
    pin(&vm, &[8]);
    assert_judged(&mut agent, &vm, &[]);
}

/// The VM is confined as a whole by its cgroup, without pins.
#[test]
fn cpuset_of_cgroup_is_reported() {
    let pod = systemd_pod_path(&unique_pod_uid());
    let cgroup = TestCgroup::new(&format!("{pod}/cri-containerd-{}.scope", "e5".repeat(32)));
    cgroup.enable(&["cpuset"]);
    cgroup.set("cpuset.cpus", "0-1,8");
    let launch = Minivm::launch().args(["--vcpus", "2"]);
    let vm = Minivm::start_launch(launch.cgroup(&cgroup));
    let found = judged(&mut agent(), &vm);
    let cpuset = found.cpuset.as_ref().map(ToString::to_string);
    assert_eq!(cpuset.as_deref(), Some("0-1,8"));
    assert_found(&found, &[]);
    assert_eq!(found.pinned_vcpus, 0);
}

/// The masks allow all CPUs, so that only residency decides: the pins are removed just
/// before the judgement.
#[test]
fn floating_vcpus_are_judged_by_residency() {
    let all: Vec<usize> = (0..12).collect();
    let vm = Minivm::start(["--topology", "cores=2", "--start", "spin"]);
    let mut agent = agent();
    let mut ran_on = |pcpus: [usize; 2]| {
        pin(&vm, &pcpus);
        judged(&mut agent, &vm);
        vm.wait_for_cpu(&[0, 1], 250);
        for vcpu in &vm.ready.vcpus {
            set_affinity(vcpu.tid, &all);
        }
        let found = topology(&agent.collect_judged(), vm.pid());
        assert_eq!(found.pinned_vcpus, 0);
        found
    };
    assert_found(&ran_on([0, 1]), &[(SmtShared, &[0, 1], "0-1")]);
    assert_found(&ran_on([0, 2]), &[]);
    assert_found(&ran_on([0, 8]), &[(NumaSplit, &[0, 1], "0-1,8-9")]);
    // A split over caches is not judged by residency: the scheduler uses all caches.
    assert_found(&ran_on([0, 4]), &[]);
}

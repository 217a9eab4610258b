//! VMs that must raise each kind of mismatch.

use super::{Guest, ONE_NODE, TWO_NODES, floating, found, judge_one, pairs, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::vocab::MismatchKind::{
    HelperOnVcpu, LlcSplit, NumaSplit, RemoteMemory, SmtShared, SmtSplit, VcpuOverlap,
};
use crate::vocab::topology::synthetic::Machine;
use crate::vocab::{MismatchKind, Role, VhostDevice};

#[track_caller]
fn assert_raised(machine: Machine, vm: VmPlacement, kinds: &[(MismatchKind, &[u32])]) {
    let judged = judge_one(&machine.host(), vm);
    let expected: Vec<(MismatchKind, Vec<u32>)> = kinds
        .iter()
        .map(|(kind, vcpus)| (*kind, vcpus.to_vec()))
        .collect();
    assert_eq!(found(&judged), expected, "{judged:#?}");
}

#[test]
fn measured_siblings_on_two_cores_raise_smt_split() {
    let vm = floating(ONE_NODE, "a", Guest(1, 1, 2)).ran(0, &[(3, 60), (19, 30), (5, 6)]);
    assert_raised(ONE_NODE, vm.ran(1, &[(4, 80)]), &[(SmtSplit, &[0, 1])]);
}

#[test]
fn guest_cores_running_at_once_on_one_core_raise_smt_shared() {
    let vm = floating(ONE_NODE, "a", Guest(1, 2, 1)).ran_on(&[3, 19]);
    let judged = judge_one(&ONE_NODE.host(), vm);
    assert_eq!(found(&judged), [(SmtShared, vec![0, 1])]);
    assert_eq!(
        judged.mismatches[0].evidence,
        "vCPUs 0 and 1 are different cores of the guest, and ran on pCPUs 3,19 of one host core \
         for 20.0 s in 10.0 s"
    );
}

#[test]
fn pin_and_mask_of_the_same_core_raise_smt_shared() {
    // Both are pinned, one of them to the whole core.
    let vm = vm("a", Guest(2, 1, 1), &["3", "3,19"]);
    assert_raised(ONE_NODE, vm, &[(SmtShared, &[0, 1])]);
}

#[test]
fn two_vcpus_of_one_vm_on_one_cpu_raise_overlap() {
    let vm = vm("a", Guest(1, 2, 1), &["3", "3"]).helper(Role::Emulator, "9");
    assert_raised(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1])]);
}

#[test]
fn vcpus_of_two_vms_on_one_cpu_raise_overlap() {
    let one = vm("one", Guest(1, 2, 1), &["3", "4"]);
    let other = vm("other", Guest(1, 2, 1), &["5", "4"]);
    let judged = judge(&ONE_NODE.host(), &[one, other]);
    for (judged, evidence) in judged.iter().zip([
        "2 vCPUs are pinned to one pCPU (4): vCPU 1 and vCPU 1 of other",
        "2 vCPUs are pinned to one pCPU (4): vCPU 1 and vCPU 1 of one",
    ]) {
        assert_eq!(found(judged), [(VcpuOverlap, vec![1])]);
        assert_eq!(judged.mismatches[0].pcpus.to_string(), "4");
        assert_eq!(judged.mismatches[0].evidence, evidence);
    }
}

#[test]
fn three_vcpus_on_a_core_of_two_threads_raise_overlap() {
    let vm = vm("a", Guest(1, 1, 3), &["3", "3,19", "3,19"]);
    assert_raised(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1, 2])]);
}

#[test]
fn overlap_on_a_cpu_is_not_repeated_for_its_core() {
    let vm = vm("a", Guest(1, 1, 3), &["3", "3", "3,19"]);
    assert_raised(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1])]);
}

#[test]
fn package_pinned_to_two_nodes_raises_numa_split() {
    let vm = vm("a", Guest(1, 4, 1), &["0", "2", "16", "18"]);
    assert_raised(TWO_NODES, vm, &[(NumaSplit, &[0, 1, 2, 3])]);
}

#[test]
fn one_vcpu_packages_pinned_to_two_nodes_raise_numa_split() {
    let vm = vm("a", Guest(4, 1, 1), &["0", "2", "16", "18"]);
    assert_raised(TWO_NODES, vm, &[(NumaSplit, &[0, 1, 2, 3])]);
}

#[test]
fn two_packages_each_on_two_nodes_raise_two_numa_splits() {
    let masks = ["0", "2", "16", "18", "20", "4"];
    let vm = vm("a", Guest(2, 3, 1), &masks);
    let both: &[(_, &[u32])] = &[(NumaSplit, &[0, 1, 2]), (NumaSplit, &[3, 4, 5])];
    assert_raised(TWO_NODES, vm, both);
}

#[test]
fn package_measured_on_two_nodes_of_idle_host_raises_numa_split() {
    let vm = floating(TWO_NODES, "a", Guest(1, 2, 1)).ran_on(&[0, 16]);
    assert_raised(TWO_NODES, vm, &[(NumaSplit, &[0, 1])]);
    // Also if the VM would fill a node: it already uses half of that node.
    let vm = floating(TWO_NODES, "a", Guest(1, 8, 1)).ran_on(&[0, 2, 4, 6, 16, 18, 20, 22]);
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_raised(TWO_NODES, vm, &[(NumaSplit, &all)]);
}

#[test]
fn die_pinned_to_two_caches_raises_llc_split() {
    let vm = vm("a", Guest(1, 4, 1), &["0", "2", "8", "10"]);
    assert_raised(TWO_NODES, vm, &[(LlcSplit, &[0, 1, 2, 3])]);
    // Four guest cores of two threads would fit into one cache of four cores.
    let masks = ["0", "1", "2", "3", "8", "9", "10", "11"];
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_raised(
        TWO_NODES,
        super::vm("a", Guest(1, 4, 2), &masks),
        &[(LlcSplit, &all)],
    );
}

#[test]
fn helpers_on_pinned_cpus_raise_helper_on_vcpu() {
    let pinned = || vm("a", Guest(1, 2, 1), &["3", "4"]);
    for role in [Role::Vhost, Role::Iothread, Role::Emulator] {
        // KubeVirt without isolateEmulatorThread: the container's cpuset.
        let judged = judge_one(&ONE_NODE.host(), pinned().helper(role, "3-4"));
        assert_eq!(found(&judged), [(HelperOnVcpu, vec![0, 1])]);
        assert_eq!(judged.mismatches[0].pcpus.to_string(), "3-4");
        assert_eq!(
            judged.mismatches[0].evidence,
            format!(
                "{} thread qemu-kvm (4000) may run on pCPUs 3-4, to which vCPUs 0 and 1 are \
                 pinned",
                role.name()
            )
        );
    }
    let mut vhost = pinned().helper(Role::Vhost, "3-4");
    vhost.helpers[0].device = Some(VhostDevice::Net);
    let judged = judge_one(&ONE_NODE.host(), vhost);
    let evidence = &judged.mismatches[0].evidence;
    assert!(evidence.contains("(4000, vhost-net)"), "{evidence}");
    // Its mask has one CPU too many.
    let vm = pinned().helper(Role::Emulator, "4-5");
    assert_raised(ONE_NODE, vm, &[(HelperOnVcpu, &[1])]);
}

#[test]
fn memory_on_other_node_raises_remote_memory() {
    let vm = vm("a", Guest(1, 2, 1), &["0", "2"]).memory(&[(0, 3), (1, 1)]);
    let judged = judge_one(&TWO_NODES.host(), vm);
    assert_eq!(found(&judged), [(RemoteMemory, vec![0, 1])]);
    assert_eq!(
        judged.mismatches[0].evidence,
        "1024 MiB of 4096 MiB of memory (25 %) are on NUMA nodes 1, while all vCPUs are pinned to \
         nodes 0"
    );
    assert_eq!(judged.mismatches[0].memory_nodes, [1]);
}

#[test]
fn overlap_and_helpers_are_judged_without_guest_topology() {
    let mut vm = vm("a", Guest(1, 2, 1), &["3", "3"]).helper(Role::Vhost, "3,5");
    vm.vcpus[1].guest = None;
    let judged = judge_one(&ONE_NODE.host(), vm);
    let expected = [(VcpuOverlap, vec![0, 1]), (HelperOnVcpu, vec![0, 1])];
    assert_eq!(found(&judged), expected);
    assert!(judged.pairs.is_err());
}

#[test]
fn several_mismatches_are_in_order_of_kind() {
    let masks = ["0", "2", "1", "16"];
    let vm = vm("a", Guest(1, 2, 2), &masks)
        .helper(Role::Emulator, "16-17")
        .memory(&[(0, 1), (1, 1)]);
    let judged = judge_one(&TWO_NODES.host(), vm);
    assert_eq!(judged.pairs, Ok(pairs(0, 2, 1)));
    let expected: [(MismatchKind, Vec<u32>); 5] = [
        (SmtSplit, vec![0, 1]),
        (SmtSplit, vec![2, 3]),
        (SmtShared, vec![0, 2]),
        (NumaSplit, vec![0, 1, 2, 3]),
        (HelperOnVcpu, vec![3]),
    ];
    assert_eq!(found(&judged), expected);
}

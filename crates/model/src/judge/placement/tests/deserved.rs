//! VMs that must raise each kind of mismatch.

use super::{ONE_NODE, TWO_NODES, Told, floating, found, judge_one, pairs, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::vocab::MismatchKind::{
    HelperOnVcpu, LlcSplit, NumaSplit, RemoteMemory, SmtShared, SmtSplit, VcpuOverlap,
};
use crate::vocab::topology::synthetic::Machine;
use crate::vocab::{MismatchKind, Role, VhostDevice};

#[track_caller]
fn deserves(machine: Machine, vm: VmPlacement, kinds: &[(MismatchKind, &[u32])]) {
    let judged = judge_one(&machine.host(), vm);
    let expected: Vec<(MismatchKind, Vec<u32>)> = kinds
        .iter()
        .map(|(kind, vcpus)| (*kind, vcpus.to_vec()))
        .collect();
    assert_eq!(found(&judged), expected, "{judged:#?}");
}

#[test]
fn measured_siblings_on_different_cores() {
    let vm = floating(ONE_NODE, "a", Told(1, 1, 2)).ran(0, &[(3, 60), (19, 30), (5, 6)]);
    deserves(ONE_NODE, vm.ran(1, &[(4, 80)]), &[(SmtSplit, &[0, 1])]);
}

#[test]
fn measured_guest_cores_side_by_side_on_one_core() {
    let vm = floating(ONE_NODE, "a", Told(1, 2, 1)).ran_on(&[3, 19]);
    deserves(ONE_NODE, vm, &[(SmtShared, &[0, 1])]);
}

#[test]
fn a_pinned_guest_core_beside_a_mask_of_its_core() {
    // Both are pinned, one of them to the whole core.
    let vm = vm("a", Told(2, 1, 1), &["3", "3,19"]);
    deserves(ONE_NODE, vm, &[(SmtShared, &[0, 1])]);
}

#[test]
fn two_vcpus_of_one_vm_on_one_cpu() {
    let vm = vm("a", Told(1, 2, 1), &["3", "3"]).helper(Role::Emulator, "9");
    deserves(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1])]);
}

#[test]
fn two_vcpus_of_two_vms_on_one_cpu() {
    let one = vm("one", Told(1, 2, 1), &["3", "4"]);
    let other = vm("other", Told(1, 2, 1), &["5", "4"]);
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
fn three_vcpus_on_the_two_threads_of_a_core() {
    let vm = vm("a", Told(1, 1, 3), &["3", "3,19", "3,19"]);
    deserves(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1, 2])]);
}

#[test]
fn an_overlap_on_a_cpu_is_not_told_again_of_its_core() {
    let vm = vm("a", Told(1, 1, 3), &["3", "3", "3,19"]);
    deserves(ONE_NODE, vm, &[(VcpuOverlap, &[0, 1])]);
}

#[test]
fn a_package_pinned_over_two_nodes() {
    let vm = vm("a", Told(1, 4, 1), &["0", "2", "16", "18"]);
    deserves(TWO_NODES, vm, &[(NumaSplit, &[0, 1, 2, 3])]);
}

#[test]
fn single_packages_pinned_over_two_nodes() {
    let vm = vm("a", Told(4, 1, 1), &["0", "2", "16", "18"]);
    deserves(TWO_NODES, vm, &[(NumaSplit, &[0, 1, 2, 3])]);
}

#[test]
fn one_of_two_packages_over_two_nodes() {
    let masks = ["0", "2", "16", "18", "20", "4"];
    let vm = vm("a", Told(2, 3, 1), &masks);
    let both: &[(_, &[u32])] = &[(NumaSplit, &[0, 1, 2]), (NumaSplit, &[3, 4, 5])];
    deserves(TWO_NODES, vm, both);
}

#[test]
fn a_floating_package_measured_over_two_nodes_of_an_idle_host() {
    let vm = floating(TWO_NODES, "a", Told(1, 2, 1)).ran_on(&[0, 16]);
    deserves(TWO_NODES, vm, &[(NumaSplit, &[0, 1])]);
    // Also if the VM would fill a node: it already uses half of that node.
    let vm = floating(TWO_NODES, "a", Told(1, 8, 1)).ran_on(&[0, 2, 4, 6, 16, 18, 20, 22]);
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    deserves(TWO_NODES, vm, &[(NumaSplit, &all)]);
}

#[test]
fn a_die_pinned_over_two_caches() {
    let vm = vm("a", Told(1, 4, 1), &["0", "2", "8", "10"]);
    deserves(TWO_NODES, vm, &[(LlcSplit, &[0, 1, 2, 3])]);
    // Four guest cores of two threads would fit into one cache of four cores.
    let masks = ["0", "1", "2", "3", "8", "9", "10", "11"];
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    deserves(
        TWO_NODES,
        super::vm("a", Told(1, 4, 2), &masks),
        &[(LlcSplit, &all)],
    );
}

#[test]
fn helpers_on_pinned_cpus() {
    let pinned = || vm("a", Told(1, 2, 1), &["3", "4"]);
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
    deserves(ONE_NODE, vm, &[(HelperOnVcpu, &[1])]);
}

#[test]
fn memory_on_the_other_node() {
    let vm = vm("a", Told(1, 2, 1), &["0", "2"]).memory(&[(0, 3), (1, 1)]);
    let judged = judge_one(&TWO_NODES.host(), vm);
    assert_eq!(found(&judged), [(RemoteMemory, vec![0, 1])]);
    assert_eq!(
        judged.mismatches[0].evidence,
        "1024 MiB of 4096 MiB of memory are on NUMA nodes 1, while all vCPUs are pinned to nodes 0"
    );
}

#[test]
fn overlap_and_helpers_are_judged_without_guest_topology() {
    let mut vm = vm("a", Told(1, 2, 1), &["3", "3"]).helper(Role::Vhost, "3,5");
    vm.vcpus[1].guest = None;
    let judged = judge_one(&ONE_NODE.host(), vm);
    let expected = [(VcpuOverlap, vec![0, 1]), (HelperOnVcpu, vec![0, 1])];
    assert_eq!(found(&judged), expected);
    assert!(judged.pairs.is_err());
}

#[test]
fn a_vm_can_deserve_several_and_they_come_in_order() {
    let masks = ["0", "2", "1", "16"];
    let vm = vm("a", Told(1, 2, 2), &masks)
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

//! VMs with a good or the best possible placement: nothing may be raised.

use super::{ONE_NODE, TWO_NODES, Told, floating, found, judge_one, pairs, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::snapshot::Unjudged;
use crate::vocab::topology::host::{CpuFact, HostTopology};
use crate::vocab::topology::synthetic::{Machine, Siblings};
use crate::vocab::{CpuSet, Role};

const ONE_CPU: Machine = Machine {
    packages: 1,
    dies: 1,
    llcs: 1,
    cores: 1,
    threads: 1,
    siblings: Siblings::Adjacent,
};
const ONE_CORE: Machine = Machine {
    threads: 2,
    ..ONE_CPU
};
const NO_SMT: Machine = Machine {
    cores: 8,
    ..ONE_CPU
};

#[track_caller]
fn innocent(machine: Machine, vm: VmPlacement) {
    let judged = judge_one(&machine.host(), vm);
    assert_eq!(found(&judged), [], "{judged:#?}");
}

#[test]
fn the_only_cpu_of_a_host_is_nobodys_choice() {
    let vm = vm("a", Told(1, 2, 1), &["0", "0"]).ran_on(&[0, 0]);
    let vm = vm.helper(Role::Emulator, "0").helper(Role::Vhost, "0");
    let judged = judge_one(&ONE_CPU.host(), vm.clone());
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
    assert_eq!(judged.pairs, Err(Unjudged::NoSmt));
    let lone = super::vm("a", Told(1, 1, 1), &["0"]);
    assert_eq!(judge_one(&ONE_CPU.host(), lone).pinned_vcpus, 0);
    let other = VmPlacement {
        name: "b".into(),
        ..vm.clone()
    };
    let judged = judge(&ONE_CPU.host(), &[vm, other]);
    assert!(judged.iter().all(|judged| judged.mismatches.is_empty()));
}

#[test]
fn the_only_core_of_a_host_has_to_be_shared() {
    let vm = floating(ONE_CORE, "a", Told(2, 1, 1)).ran_on(&[0, 1]);
    innocent(ONE_CORE, vm.helper(Role::Emulator, "0-1"));
}

#[test]
fn a_vm_confined_to_a_cpuset_is_not_pinned() {
    // A static CPU manager gives the pod one CPU, Kata two vCPUs.
    let vm = vm("a", Told(2, 1, 1), &["3", "3"]).helper(Role::Emulator, "3");
    let judged = judge_one(&ONE_NODE.host(), vm.ran(0, &[(3, 50)]).ran(1, &[(3, 50)]));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

#[test]
fn masks_of_several_cores_are_no_pins() {
    let vm = vm("a", Told(1, 3, 1), &["3-4", "3-4", "3-4,20"]).helper(Role::Emulator, "3-4");
    let judged = judge_one(&ONE_NODE.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

#[test]
fn guest_siblings_may_share_the_mask_of_their_core() {
    let vm = vm("a", Told(1, 2, 2), &["1,17", "1,17", "2,18", "2,18"]);
    let judged = judge_one(&ONE_NODE.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));
    assert_eq!(judged.pairs, Ok(pairs(2, 0, 0)));
}

#[test]
fn a_host_without_smt_has_no_siblings_to_miss() {
    for masks in [["1", "2"], ["3", "5"]] {
        let vm = vm("a", Told(1, 1, 2), &masks);
        let judged = judge_one(&NO_SMT.host(), vm);
        assert_eq!(found(&judged), []);
        assert_eq!(judged.pairs, Err(Unjudged::NoSmt));
    }
}

#[test]
fn taking_turns_on_a_core_is_not_side_by_side() {
    let vm = || floating(ONE_NODE, "a", Told(1, 2, 1));
    innocent(ONE_NODE, vm().ran(0, &[(3, 50)]).ran(1, &[(19, 50)]));
    // Accounting lag makes one CPU appear to run longer.
    innocent(ONE_NODE, vm().ran(0, &[(3, 53)]).ran(1, &[(3, 54)]));
}

#[test]
fn a_crowded_host_has_no_core_for_each() {
    let vm = floating(ONE_NODE, "a", Told(1, 2, 1)).ran_on(&[3, 19]);
    let crowd = floating(ONE_NODE, "crowd", Told(15, 1, 1));
    let crowd = crowd.ran_on(&[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let judged = judge(&ONE_NODE.host(), &[vm.clone(), crowd]);
    assert_eq!(found(&judged[0]), []);
    // If the other load is elsewhere, the sharing is avoidable.
    let elsewhere = floating(ONE_NODE, "crowd", Told(1, 1, 1)).ran_on(&[0]);
    let judged = judge(&ONE_NODE.host(), &[vm, elsewhere]);
    assert_eq!(found(&judged[0]).len(), 1);
}

#[test]
fn more_guest_cores_than_host_cores_have_to_share() {
    let vm = floating(ONE_CORE, "a", Told(1, 3, 1));
    innocent(ONE_CORE, vm.ran_on(&[0, 1]));
}

#[test]
fn who_hardly_ran_or_ran_everywhere_is_not_judged() {
    let vm = || floating(ONE_NODE, "a", Told(1, 1, 2));
    innocent(ONE_NODE, vm());
    innocent(ONE_NODE, vm().ran(0, &[(3, 4)]).ran(1, &[(4, 4)]));
    let wandered = vm().ran(0, &[(3, 50), (5, 40)]).ran(1, &[(4, 90)]);
    let judged = judge_one(&ONE_NODE.host(), wandered);
    assert_eq!(found(&judged), []);
    assert_eq!(judged.pairs, Ok(pairs(0, 0, 0)));
    // The CPUs of most of its run time are unknown.
    let mut unknown = vm().ran(0, &[(3, 10)]).ran(1, &[(4, 90)]);
    unknown.vcpus[0].cpu_ns *= 5;
    innocent(ONE_NODE, unknown);
    // A first reading has no window.
    let mut first = vm().ran(0, &[(3, 90)]).ran(1, &[(4, 90)]);
    first.window_ns = 0;
    innocent(ONE_NODE, first);
}

#[test]
fn a_vm_larger_than_a_node_or_a_cache_has_to_be_split() {
    // 9 guest cores for nodes of 8: one thread of each core.
    let masks: Vec<String> = (0..9).map(|core| (core * 2).to_string()).collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    innocent(TWO_NODES, vm("a", Told(1, 9, 1), &masks));
    innocent(TWO_NODES, vm("a", Told(9, 1, 1), &masks));
    // 5 guest cores for caches of 4, inside a node.
    innocent(TWO_NODES, vm("a", Told(1, 5, 1), &masks[..5]));
    // 5 guest cores of two threads.
    let masks: Vec<String> = (0..10).map(|cpu: u32| cpu.to_string()).collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    innocent(TWO_NODES, vm("a", Told(1, 5, 2), &masks));
}

#[test]
fn packages_on_nodes_of_their_own_are_right() {
    innocent(TWO_NODES, vm("a", Told(2, 2, 1), &["0", "2", "16", "18"]));
    innocent(TWO_NODES, vm("a", Told(2, 1, 1), &["0", "16"]));
    // Two packages per node.
    let masks = ["0", "2", "4", "6", "16", "18", "20", "22"];
    innocent(TWO_NODES, vm("a", Told(4, 2, 1), &masks));
    // Each die on its own cache.
    let mut dies = vm("a", Told(1, 4, 1), &["0", "2", "8", "10"]);
    for vcpu in &mut dies.vcpus {
        let guest = vcpu.guest.as_mut().expect("told");
        guest.die = guest.core / 2;
    }
    innocent(TWO_NODES, dies);
}

#[test]
fn a_guest_that_knows_its_nodes_may_span_them() {
    let split = vm("a", Told(1, 4, 1), &["0", "2", "16", "18"]);
    innocent(
        TWO_NODES,
        VmPlacement {
            guest_nodes: Some(2),
            ..split.clone().memory(&[(0, 4), (1, 4)])
        },
    );
    let told_of_one = VmPlacement {
        guest_nodes: Some(1),
        ..split
    };
    assert_eq!(found(&judge_one(&TWO_NODES.host(), told_of_one)).len(), 1);
}

#[test]
fn a_floating_vm_is_spread_where_no_node_has_room() {
    let vm = floating(TWO_NODES, "a", Told(1, 2, 1)).ran_on(&[0, 16]);
    let busy = |name, first: u32| {
        let cpus: Vec<u32> = (0..7).map(|core| first + core * 2).collect();
        floating(TWO_NODES, name, Told(7, 1, 1)).ran_on(&cpus)
    };
    let judged = judge(
        &TWO_NODES.host(),
        &[vm.clone(), busy("b", 2), busy("c", 18)],
    );
    assert_eq!(found(&judged[0]), []);
    let judged = judge(&TWO_NODES.host(), &[vm, busy("b", 2)]);
    assert_eq!(found(&judged[0]).len(), 1, "node 1 has room");
}

#[test]
fn a_floating_vm_on_several_caches_uses_them() {
    let vm = floating(TWO_NODES, "a", Told(1, 2, 1)).ran_on(&[0, 8]);
    innocent(TWO_NODES, vm);
}

#[test]
fn helpers_elsewhere_or_anywhere_are_no_intruders() {
    let pinned = || vm("a", Told(1, 2, 1), &["3", "4"]);
    for mask in ["5", "19-20", "0-31", "0-511"] {
        innocent(ONE_NODE, pinned().helper(Role::Emulator, mask));
    }
    // Other processes of the pod do not count as the VM's threads.
    innocent(ONE_NODE, pinned().helper(Role::Helper, "3-4"));
    // If vCPUs are pinned to all CPUs, helpers cannot run elsewhere.
    let all = vm("a", Told(1, 1, 2), &["0", "1"]).helper(Role::Emulator, "0-1");
    innocent(ONE_CORE, all);
    // No vCPU is pinned.
    let vm = vm("a", Told(1, 2, 1), &["3-4", "3-4"]).helper(Role::Vhost, "3");
    innocent(ONE_NODE, vm);
}

#[test]
fn memory_nearby_unknown_or_in_tiers_is_not_remote() {
    let pinned = || vm("a", Told(1, 2, 1), &["0", "2"]);
    innocent(TWO_NODES, pinned().memory(&[(0, 9), (1, 1)]));
    innocent(TWO_NODES, pinned().memory(&[(0, 1), (5, 9)]));
    innocent(TWO_NODES, pinned().memory(&[]));
    // The location of its vCPUs is unknown.
    let floats = floating(TWO_NODES, "a", Told(1, 2, 1));
    innocent(TWO_NODES, floats.memory(&[(1, 8)]));
}

#[test]
fn what_is_not_known_is_not_judged() {
    let told = Told(1, 2, 2);
    let masks = ["1", "2", "17", "18"];
    let mut untold = vm("a", told, &masks);
    untold.vcpus[3].guest = None;
    let judged = judge_one(&ONE_NODE.host(), untold);
    assert_eq!(judged.pairs, Err(Unjudged::GuestTopology));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));

    let online: CpuSet = (0..32).collect();
    let fact = |cpu| CpuFact {
        cpu,
        ..CpuFact::default()
    };
    let facts: Vec<CpuFact> = (0..32).map(fact).collect();
    let blind = HostTopology::new(&facts, &online);
    let judged = judge_one(&blind, vm("a", told, &masks));
    assert_eq!(judged.pairs, Err(Unjudged::HostTopology));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));

    let mut unseen = vm("a", told, &masks);
    unseen
        .vcpus
        .iter_mut()
        .for_each(|vcpu| vcpu.affinity = None);
    let judged = judge_one(&ONE_NODE.host(), unseen);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
    assert_eq!(judge(&ONE_NODE.host(), &[]), []);
    innocent(ONE_NODE, VmPlacement::default());
}

#[test]
fn offline_cpus_in_masks_do_not_count() {
    // All possible CPUs: the kernel's default mask.
    let machine = Machine {
        cores: 4,
        ..ONE_CPU
    };
    let vm = vm("a", Told(1, 2, 1), &["0-8191", "0-8191"]);
    let judged = judge_one(&machine.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

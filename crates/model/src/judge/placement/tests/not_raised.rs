//! VMs with a good or the best possible placement: nothing may be raised.

use super::{Guest, ONE_NODE, TWO_NODES, floating, found, judge_one, pairs, vm};
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
fn assert_not_raised(machine: Machine, vm: VmPlacement) {
    let judged = judge_one(&machine.host(), vm);
    assert_eq!(found(&judged), [], "{judged:#?}");
}

#[test]
fn single_cpu_host_raises_nothing() {
    let vm = vm("a", Guest(1, 2, 1), &["0", "0"]).ran_on(&[0, 0]);
    let vm = vm.helper(Role::Emulator, "0").helper(Role::Vhost, "0");
    let judged = judge_one(&ONE_CPU.host(), vm.clone());
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
    assert_eq!(judged.pairs, Err(Unjudged::NoSmt));
    let lone = super::vm("a", Guest(1, 1, 1), &["0"]);
    assert_eq!(judge_one(&ONE_CPU.host(), lone).pinned_vcpus, 0);
    let other = VmPlacement {
        name: "b".into(),
        ..vm.clone()
    };
    let judged = judge(&ONE_CPU.host(), &[vm, other]);
    assert!(judged.iter().all(|judged| judged.mismatches.is_empty()));
}

#[test]
fn single_core_host_raises_nothing() {
    let vm = floating(ONE_CORE, "a", Guest(2, 1, 1)).ran_on(&[0, 1]);
    assert_not_raised(ONE_CORE, vm.helper(Role::Emulator, "0-1"));
}

#[test]
fn vm_confined_to_cpuset_is_not_pinned() {
    // A static CPU manager gives the pod one CPU, Kata two vCPUs.
    let vm = vm("a", Guest(2, 1, 1), &["3", "3"]).helper(Role::Emulator, "3");
    let judged = judge_one(&ONE_NODE.host(), vm.ran(0, &[(3, 50)]).ran(1, &[(3, 50)]));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

#[test]
fn masks_of_several_cores_do_not_pin() {
    let vm = vm("a", Guest(1, 3, 1), &["3-4", "3-4", "3-4,20"]).helper(Role::Emulator, "3-4");
    let judged = judge_one(&ONE_NODE.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

#[test]
fn siblings_with_mask_of_one_core_are_aligned() {
    let vm = vm("a", Guest(1, 2, 2), &["1,17", "1,17", "2,18", "2,18"]);
    let judged = judge_one(&ONE_NODE.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));
    assert_eq!(judged.pairs, Ok(pairs(2, 0, 0)));
}

#[test]
fn host_without_smt_raises_no_smt_mismatch() {
    for masks in [["1", "2"], ["3", "5"]] {
        let vm = vm("a", Guest(1, 1, 2), &masks);
        let judged = judge_one(&NO_SMT.host(), vm);
        assert_eq!(found(&judged), []);
        assert_eq!(judged.pairs, Err(Unjudged::NoSmt));
    }
}

#[test]
fn alternate_use_of_a_core_raises_nothing() {
    let vm = || floating(ONE_NODE, "a", Guest(1, 2, 1));
    assert_not_raised(ONE_NODE, vm().ran(0, &[(3, 50)]).ran(1, &[(19, 50)]));
    // Accounting lag makes one CPU appear to run longer.
    assert_not_raised(ONE_NODE, vm().ran(0, &[(3, 53)]).ran(1, &[(3, 54)]));
}

#[test]
fn sharing_on_a_full_host_raises_nothing() {
    let vm = floating(ONE_NODE, "a", Guest(1, 2, 1)).ran_on(&[3, 19]);
    let busy = floating(ONE_NODE, "busy", Guest(15, 1, 1));
    let busy = busy.ran_on(&[0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let judged = judge(&ONE_NODE.host(), &[vm.clone(), busy]);
    assert_eq!(found(&judged[0]), []);
    // If the other load is elsewhere, the sharing is avoidable.
    let elsewhere = floating(ONE_NODE, "busy", Guest(1, 1, 1)).ran_on(&[0]);
    let judged = judge(&ONE_NODE.host(), &[vm, elsewhere]);
    assert_eq!(found(&judged[0]).len(), 1);
}

#[test]
fn more_guest_cores_than_host_cores_raise_nothing() {
    let vm = floating(ONE_CORE, "a", Guest(1, 3, 1));
    assert_not_raised(ONE_CORE, vm.ran_on(&[0, 1]));
}

#[test]
fn vcpu_without_location_is_not_judged() {
    let vm = || floating(ONE_NODE, "a", Guest(1, 1, 2));
    assert_not_raised(ONE_NODE, vm());
    assert_not_raised(ONE_NODE, vm().ran(0, &[(3, 4)]).ran(1, &[(4, 4)]));
    let unlocated = vm().ran(0, &[(3, 50), (5, 40)]).ran(1, &[(4, 90)]);
    let judged = judge_one(&ONE_NODE.host(), unlocated);
    assert_eq!(found(&judged), []);
    assert_eq!(judged.pairs, Ok(pairs(0, 0, 0)));
    // The CPUs of most of its run time are unknown.
    let mut unknown = vm().ran(0, &[(3, 10)]).ran(1, &[(4, 90)]);
    unknown.vcpus[0].cpu_ns *= 5;
    assert_not_raised(ONE_NODE, unknown);
    // A first reading has no window.
    let mut first = vm().ran(0, &[(3, 90)]).ran(1, &[(4, 90)]);
    first.window_ns = 0;
    assert_not_raised(ONE_NODE, first);
}

#[test]
fn vm_larger_than_node_or_cache_raises_nothing() {
    // 9 guest cores for nodes of 8: one thread of each core.
    let masks: Vec<String> = (0..9).map(|core| (core * 2).to_string()).collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    assert_not_raised(TWO_NODES, vm("a", Guest(1, 9, 1), &masks));
    assert_not_raised(TWO_NODES, vm("a", Guest(9, 1, 1), &masks));
    // 5 guest cores for caches of 4, inside a node.
    assert_not_raised(TWO_NODES, vm("a", Guest(1, 5, 1), &masks[..5]));
    // 5 guest cores of two threads.
    let masks: Vec<String> = (0..10).map(|cpu: u32| cpu.to_string()).collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    assert_not_raised(TWO_NODES, vm("a", Guest(1, 5, 2), &masks));
}

#[test]
fn each_package_on_one_node_raises_nothing() {
    assert_not_raised(TWO_NODES, vm("a", Guest(2, 2, 1), &["0", "2", "16", "18"]));
    assert_not_raised(TWO_NODES, vm("a", Guest(2, 1, 1), &["0", "16"]));
    // Two packages per node.
    let masks = ["0", "2", "4", "6", "16", "18", "20", "22"];
    assert_not_raised(TWO_NODES, vm("a", Guest(4, 2, 1), &masks));
    // Each die on its own cache.
    let mut dies = vm("a", Guest(1, 4, 1), &["0", "2", "8", "10"]);
    for vcpu in &mut dies.vcpus {
        let guest = vcpu.guest.as_mut().expect("every vCPU has a place");
        guest.die = guest.core / 2;
    }
    assert_not_raised(TWO_NODES, dies);
}

#[test]
fn guest_with_several_nodes_may_span_nodes() {
    let split = vm("a", Guest(1, 4, 1), &["0", "2", "16", "18"]);
    assert_not_raised(
        TWO_NODES,
        VmPlacement {
            guest_nodes: Some(2),
            ..split.clone().memory(&[(0, 4), (1, 4)])
        },
    );
    let with_one_node = VmPlacement {
        guest_nodes: Some(1),
        ..split
    };
    assert_eq!(found(&judge_one(&TWO_NODES.host(), with_one_node)).len(), 1);
}

#[test]
fn spread_without_room_on_a_node_raises_nothing() {
    let vm = floating(TWO_NODES, "a", Guest(1, 2, 1)).ran_on(&[0, 16]);
    let busy = |name, first: u32| {
        let cpus: Vec<u32> = (0..7).map(|core| first + core * 2).collect();
        floating(TWO_NODES, name, Guest(7, 1, 1)).ran_on(&cpus)
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
fn floating_vm_on_several_caches_raises_nothing() {
    let vm = floating(TWO_NODES, "a", Guest(1, 2, 1)).ran_on(&[0, 8]);
    assert_not_raised(TWO_NODES, vm);
}

#[test]
fn helpers_on_other_or_all_cpus_raise_nothing() {
    let pinned = || vm("a", Guest(1, 2, 1), &["3", "4"]);
    for mask in ["5", "19-20", "0-31", "0-511"] {
        assert_not_raised(ONE_NODE, pinned().helper(Role::Emulator, mask));
    }
    // Other processes of the pod do not count as the VM's threads.
    assert_not_raised(ONE_NODE, pinned().helper(Role::Helper, "3-4"));
    // If vCPUs are pinned to all CPUs, helpers cannot run elsewhere.
    let all = vm("a", Guest(1, 1, 2), &["0", "1"]).helper(Role::Emulator, "0-1");
    assert_not_raised(ONE_CORE, all);
    // No vCPU is pinned.
    let vm = vm("a", Guest(1, 2, 1), &["3-4", "3-4"]).helper(Role::Vhost, "3");
    assert_not_raised(ONE_NODE, vm);
}

#[test]
fn local_unknown_or_tiered_memory_raises_nothing() {
    let pinned = || vm("a", Guest(1, 2, 1), &["0", "2"]);
    assert_not_raised(TWO_NODES, pinned().memory(&[(0, 9), (1, 1)]));
    assert_not_raised(TWO_NODES, pinned().memory(&[(0, 1), (5, 9)]));
    assert_not_raised(TWO_NODES, pinned().memory(&[]));
    // The location of its vCPUs is unknown.
    let floats = floating(TWO_NODES, "a", Guest(1, 2, 1));
    assert_not_raised(TWO_NODES, floats.memory(&[(1, 8)]));
}

#[test]
fn unknown_topology_or_mask_is_not_judged() {
    let guest = Guest(1, 2, 2);
    let masks = ["1", "2", "17", "18"];
    let mut partly_known = vm("a", guest, &masks);
    partly_known.vcpus[3].guest = None;
    let judged = judge_one(&ONE_NODE.host(), partly_known);
    assert_eq!(judged.pairs, Err(Unjudged::GuestTopology));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));

    let online: CpuSet = (0..32).collect();
    let fact = |cpu| CpuFact {
        cpu,
        ..CpuFact::default()
    };
    let facts: Vec<CpuFact> = (0..32).map(fact).collect();
    let no_cores = HostTopology::new(&facts, &online);
    let judged = judge_one(&no_cores, vm("a", guest, &masks));
    assert_eq!(judged.pairs, Err(Unjudged::HostTopology));
    assert_eq!((judged.pinned_vcpus, found(&judged)), (4, vec![]));

    let mut no_masks = vm("a", guest, &masks);
    no_masks
        .vcpus
        .iter_mut()
        .for_each(|vcpu| vcpu.affinity = None);
    let judged = judge_one(&ONE_NODE.host(), no_masks);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
    assert_eq!(judge(&ONE_NODE.host(), &[]), []);
    assert_not_raised(ONE_NODE, VmPlacement::default());
}

#[test]
fn offline_cpus_in_masks_are_ignored() {
    // All possible CPUs: the kernel's default mask.
    let machine = Machine {
        cores: 4,
        ..ONE_CPU
    };
    let vm = vm("a", Guest(1, 2, 1), &["0-8191", "0-8191"]);
    let judged = judge_one(&machine.host(), vm);
    assert_eq!((judged.pinned_vcpus, found(&judged)), (0, vec![]));
}

//! vCPUs that KVM holds and no thread runs: unplugged vCPUs, and vCPUs that never ran.

use std::sync::Arc;

use super::{facts, read, retired, vcpu, vm};
use crate::facts::{Facts, RetiredFact, ThreadClass, VmFact};
use crate::fleet::registry::Fleet;
use crate::snapshot::VcpuCount;
use crate::vocab::Owner;

/// A VM with three vCPUs in KVM and threads for those of `living`.
fn held(living: &[u32], ended: Vec<RetiredFact>) -> Facts {
    let threads = living.iter().map(|id| vcpu(vm(100), 100 + id, *id, 10));
    let mut facts = facts(threads.collect(), ended);
    let vm = vm(100);
    facts.vms = vec![VmFact {
        vm,
        vcpus: 3,
        mmu: None,
    }];
    facts
}

fn ended(id: u32) -> RetiredFact {
    let fact = retired(Owner::Vm(vm(100)), "CPU 2/KVM", 10);
    RetiredFact {
        class: ThreadClass {
            vcpu_id: Some(id),
            ..fact.class
        },
        ..fact
    }
}

fn counted(facts: &Facts) -> VcpuCount {
    let mut fleet = Fleet::new(0);
    let (vms, _) = read(&mut fleet, facts, "a", 0);
    vms[0].vcpu_count
}

#[test]
fn unplugged_vcpu_is_parked_until_it_runs_again() {
    let count = counted(&held(&[0, 1], vec![ended(2)]));
    assert_eq!((count.parked, count.usable(), count.seen), (Some(1), 2, 2));
    let again = counted(&held(&[0, 1, 2], vec![ended(2)]));
    assert_eq!((again.parked, again.usable()), (Some(0), 3));
}

#[test]
fn vcpu_that_never_ran_is_not_parked() {
    let count = counted(&held(&[0, 1], Vec::new()));
    assert_eq!((count.parked, count.usable(), count.seen), (Some(0), 3, 2));
}

#[test]
fn vcpu_unplugged_before_agent_looked_is_parked() {
    let mut facts = held(&[0, 1], Vec::new());
    facts.has_run = Arc::new([(vm(100), vec![0, 1, 2])].into_iter().collect());
    let count = counted(&facts);
    assert_eq!((count.parked, count.usable()), (Some(1), 2));
}

#[test]
fn restarted_vm_does_not_inherit_parked_vcpus() {
    let mut fleet = Fleet::new(0);
    read(&mut fleet, &held(&[0, 1], vec![ended(2)]), "a", 0);
    let mut next = facts(vec![vcpu(vm(200), 200, 0, 10)], vec![ended(2)]);
    next.vms = vec![VmFact {
        vm: vm(200),
        vcpus: 1,
        mmu: None,
    }];
    let (vms, _) = read(&mut fleet, &next, "a", 1);
    let counts: Vec<_> = vms
        .iter()
        .map(|vm| (vm.pid, vm.vcpu_count.usable()))
        .collect();
    assert_eq!(counts, [(200, 1)]);
    assert_eq!(vms[0].vcpu_count.parked, Some(0));
}

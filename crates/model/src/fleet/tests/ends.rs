//! VMs whose VMM outlives them.

use super::{cpu_ns, facts, read, retired, thread, vcpu, vm};
use crate::facts::{Facts, VmFact, VmPlacementFact};
use crate::fleet::registry::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{Owner, Role};

/// A VMM with `vcpus` vCPU threads and one other thread.
fn vmm(vcpus: u32) -> Facts {
    let threads = (0..vcpus).map(|id| vcpu(vm(100), 101 + id, id, 500));
    let main = thread(Owner::Vm(vm(100)), 100, "vmm", 70);
    facts(threads.chain([main]).collect(), vec![])
}

fn only(fleet: &mut Fleet, facts: &Facts, now_ns: u64) -> Option<Vm> {
    read(fleet, facts, "a", now_ns).0.pop()
}

#[test]
fn vm_that_kvm_released_ends_and_lingers_while_its_vmm_lives() {
    let mut fleet = Fleet::new(60);
    assert!(only(&mut fleet, &vmm(2), 0).is_some_and(|vm| vm.running));
    let ended = only(&mut fleet, &vmm(0), 10).expect("it lingers");
    assert!(!ended.running && cpu_ns(&ended, Role::Vcpu) == 1000);
    assert!(only(&mut fleet, &vmm(0), 71).is_none(), "its time is over");
    assert!(
        only(&mut fleet, &vmm(0), 72).is_none(),
        "its VMM is no new VM"
    );
    // The VM runs again after it boots.
    assert!(only(&mut fleet, &vmm(1), 73).is_some_and(|vm| vm.running));
}

#[test]
fn vm_rebooted_within_linger_continues() {
    let mut fleet = Fleet::new(60);
    only(&mut fleet, &vmm(2), 0);
    only(&mut fleet, &vmm(0), 10);
    let again = only(&mut fleet, &vmm(2), 20).expect("it runs");
    assert!(again.running && cpu_ns(&again, Role::Vcpu) == 1000);
}

/// A pass can find a VM that has ended when the pass that counts is run.
#[test]
fn vm_with_counters_that_is_neither_alive_nor_known_is_missed() {
    let mut fleet = Fleet::new(60);
    only(&mut fleet, &vmm(1), 0);
    let times = |tgid| retired(Owner::Vm(vm(tgid)), "vcpu0", 5);
    let alive = thread(Owner::Vm(vm(300)), 300, "vmm", 1);
    let mut facts = facts(
        vmm(1).threads.iter().cloned().chain([alive]).collect(),
        vec![times(100), times(200), times(300)],
    );
    let placement = VmPlacementFact::default();
    facts.placements = [100, 300, 400]
        .map(|tgid| (vm(tgid), placement))
        .into_iter()
        .collect();
    let mut missed: Vec<_> = fleet.missed(&facts).into_iter().collect();
    missed.sort_unstable();
    assert_eq!(missed, [vm(200), vm(400)]);
}

/// It was started paused, and no vCPU has run yet.
#[test]
fn vm_with_vcpus_that_never_ran_is_running() {
    let mut fleet = Fleet::new(60);
    let paused = Facts {
        vms: vec![VmFact {
            vm: vm(100),
            vcpus: 2,
            mmu: None,
        }],
        ..vmm(0)
    };
    assert!(only(&mut fleet, &paused, 0).is_some_and(|vm| vm.running));
}

//! VMs whose VMM outlives them.

use super::{cpu_ns, facts, read, thread, vcpu, vm};
use crate::facts::{Facts, VmFact};
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

/// It was started paused, and no vCPU has run yet.
#[test]
fn vm_with_vcpus_that_never_ran_is_running() {
    let mut fleet = Fleet::new(60);
    let paused = Facts {
        vms: vec![VmFact {
            vm: vm(100),
            vcpus: 2,
        }],
        ..vmm(0)
    };
    assert!(only(&mut fleet, &paused, 0).is_some_and(|vm| vm.running));
}

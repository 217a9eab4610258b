//! Memory of a former reading that the next one reuses.

use super::{facts, read, thread, vcpu, vm};
use crate::facts::Facts;
use crate::fleet::registry::Fleet;
use crate::vocab::Owner;

/// A VM with two vCPUs and an iothread.
fn running(cpu_ns: u64) -> Facts {
    let vcpus = [(101, 0), (102, 1)].map(|(tid, id)| vcpu(vm(100), tid, id, cpu_ns));
    let iothread = thread(Owner::Vm(vm(100)), 103, "IO iothread0", cpu_ns);
    facts([vcpus.to_vec(), vec![iothread]].concat(), Vec::new())
}

#[test]
fn recycled_reading_changes_no_value_of_next() {
    let (mut fleet, mut plain) = (Fleet::new(0), Fleet::new(0));
    let unplugged = facts(vec![vcpu(vm(100), 101, 0, 30)], Vec::new());
    let both = [
        running(40).threads.to_vec(),
        vec![vcpu(vm(200), 201, 0, 50)],
    ];
    let both = facts(both.concat(), Vec::new());
    let history = [running(10), running(20), unplugged, both, running(60)];
    for (facts, now_ns) in history.iter().zip(0..) {
        let (vms, _) = read(&mut fleet, facts, "a", now_ns);
        assert_eq!(vms, read(&mut plain, facts, "a", now_ns).0);
        fleet.recycle(vms);
    }
}

#[test]
fn next_reading_of_same_vm_uses_recycled_memory() {
    let mut fleet = Fleet::new(0);
    let (vms, _) = read(&mut fleet, &running(10), "a", 0);
    let former = (vms[0].vcpus.as_ptr(), vms[0].threads.as_ptr());
    fleet.recycle(vms);
    let (vms, _) = read(&mut fleet, &running(20), "a", 1);
    assert_eq!((vms[0].vcpus.as_ptr(), vms[0].threads.as_ptr()), former);
}

#[test]
fn another_vm_gets_no_recycled_memory() {
    let mut fleet = Fleet::new(0);
    let (mut vms, _) = read(&mut fleet, &running(10), "a", 0);
    vms[0].pid = 200;
    vms[0].vcpus.reserve_exact(100);
    fleet.recycle(vms);
    let (vms, _) = read(&mut fleet, &running(20), "a", 1);
    assert!(vms[0].vcpus.capacity() < 100);
}

//! Several VMs in one pod: which of them counts the pod's other processes.

use std::collections::BTreeMap;

use super::{POD, cpu_ns, facts, qemu, retired, thread, vcpu, vm};
use crate::facts::{Facts, RetiredFact};
use crate::fleet::kept::Kept;
use crate::fleet::registry::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{Owner, Role, VmKey};

/// VMs by pid with the time of their vCPU, the helper's time, and the ended threads.
fn host(vms: &[(u32, u64)], helper_ns: u64, ended: &[RetiredFact]) -> Facts {
    let living = vms.iter().map(|(pid, ns)| vcpu(vm(*pid), pid + 1, 0, *ns));
    let helper = thread(Owner::Pod(POD), 900, "helper", helper_ns);
    facts(living.chain([helper]).collect(), ended.to_vec())
}

/// The final time of a VM's vCPU.
fn gone(pid: u32, ns: u64) -> RetiredFact {
    let mut gone = retired(Owner::Vm(vm(pid)), "CPU 0/KVM", ns);
    gone.class.vcpu_id = Some(0);
    gone
}

fn read(fleet: &mut Fleet, facts: &Facts, now_ns: u64) -> BTreeMap<String, Vm> {
    let mut met: Vec<VmKey> = fleet.unknown_vms(facts).into_iter().collect();
    met.sort_unstable();
    for one in met {
        let name = format!("guest=vm{}", one.tgid / 100);
        fleet.admit(one, &qemu(&name), facts);
    }
    fleet.follow(facts, |_| None);
    let (vms, _) = fleet.account(facts, now_ns);
    let named = vms.into_iter().map(|vm| (vm.vm.to_string(), vm));
    named.collect()
}

fn helpers(vms: &BTreeMap<String, Vm>) -> Vec<u64> {
    let helpers = vms.values().map(|vm| cpu_ns(vm, Role::Helper));
    helpers.collect()
}

fn another_agent(fleet: &mut Fleet, facts: &Facts) -> Fleet {
    let kept = fleet.unsaved().into_iter().map(|(vm, kept)| {
        let text = serde_json::to_string(&kept).expect("it is plain data");
        let kept: Kept = serde_json::from_str(&text).expect("it was written");
        (vm, kept)
    });
    let mut next = Fleet::new(u64::MAX);
    next.recall(kept.collect(), facts, 0);
    next
}

#[test]
fn next_vm_of_pod_continues_counters_of_ended_oldest() {
    let mut fleet = Fleet::new(10);
    let both = host(&[(100, 50), (200, 60)], 1000, &[]);
    assert_eq!(helpers(&read(&mut fleet, &both, 0)), [1000, 0]);
    let one = |helper_ns| host(&[(200, 70)], helper_ns, &[gone(100, 55)]);
    assert_eq!(helpers(&read(&mut fleet, &one(1005), 1)), [1000, 5]);
    assert_eq!(helpers(&read(&mut fleet, &one(1040), 2)), [1000, 40]);
    assert_eq!(helpers(&read(&mut fleet, &one(1050), 20)), [50]);
}

#[test]
fn restarted_vm_with_sibling_counts_only_its_own_time() {
    let mut fleet = Fleet::new(u64::MAX);
    read(&mut fleet, &host(&[(100, 50), (200, 60)], 1000, &[]), 0);
    let ended = [gone(100, 55)];
    read(&mut fleet, &host(&[(200, 60)], 1000, &ended), 1);
    let again = host(&[(101, 7), (200, 60)], 1010, &ended);
    let vms = read(&mut fleet, &again, 2);
    assert_eq!(helpers(&vms), [1000, 10]);
    assert_eq!(
        cpu_ns(&vms["vm1"], Role::Vcpu),
        62,
        "no wait for the helpers' time"
    );
}

#[test]
fn vm_restarted_between_readings_keeps_its_pod() {
    let mut fleet = Fleet::new(u64::MAX);
    read(&mut fleet, &host(&[(100, 50), (200, 60)], 1000, &[]), 0);
    let again = host(&[(101, 7), (200, 60)], 1010, &[gone(100, 55)]);
    assert_eq!(helpers(&read(&mut fleet, &again, 2)), [1010, 0]);
}

#[test]
fn vm_replaced_without_agent_continues_counters_of_pod() {
    let mut fleet = Fleet::new(u64::MAX);
    read(&mut fleet, &host(&[(100, 50), (200, 60)], 1000, &[]), 0);
    let after = host(&[(200, 70)], 1040, &[gone(100, 55)]);
    let mut next = another_agent(&mut fleet, &after);
    assert_eq!(helpers(&read(&mut next, &after, 1)), [1040, 0]);
    let later = host(&[(200, 70)], 1050, &[gone(100, 55)]);
    assert_eq!(helpers(&read(&mut next, &later, 2)), [1040, 10]);
    let mut last = another_agent(&mut next, &later);
    assert_eq!(helpers(&read(&mut last, &later, 3)), [1040, 10]);
}

#[test]
fn new_vm_in_pod_of_lingering_vm_continues_counters() {
    let mut fleet = Fleet::new(u64::MAX);
    read(&mut fleet, &host(&[(100, 50)], 1000, &[]), 0);
    let ended = [gone(100, 55)];
    assert_eq!(
        helpers(&read(&mut fleet, &host(&[], 1010, &ended), 1)),
        [1010]
    );
    let other = host(&[(200, 1)], 1025, &ended);
    assert_eq!(helpers(&read(&mut fleet, &other, 2)), [1010, 15]);
}

#[test]
fn next_vm_levels_do_not_jump_by_former_helper_time() {
    let mut fleet = Fleet::new(u64::MAX);
    let used = |vms: &BTreeMap<String, Vm>| {
        let pod = vms["vm2"].quota.first().expect("it has levels");
        pod.used_ns.get(&Role::Helper).copied().unwrap_or(0)
    };
    read(&mut fleet, &host(&[(100, 50), (200, 60)], 1000, &[]), 0);
    let one = |helper_ns| host(&[(200, 70)], helper_ns, &[gone(100, 55)]);
    assert_eq!(used(&read(&mut fleet, &one(1005), 1)), 0);
    assert_eq!(used(&read(&mut fleet, &one(1040), 2)), 35);
}

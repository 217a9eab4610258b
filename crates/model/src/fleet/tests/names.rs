//! Names of VMs whose preferred name is taken.

use std::collections::BTreeSet;

use super::{facts, read, vcpu, vm};
use crate::facts::Facts;
use crate::fleet::registry::Fleet;
use crate::vocab::Owner;

fn running(tgids: &[u32]) -> Facts {
    let threads = tgids.iter().map(|tgid| vcpu(vm(*tgid), tgid + 1, 0, 1));
    facts(threads.collect(), vec![])
}

/// A tenant that knows another tenant's name and guesses its pid.
#[test]
fn name_with_pid_suffix_does_not_take_another_vms_name() {
    let mut fleet = Fleet::new(0);
    read(&mut fleet, &running(&[100]), "web", 0);
    read(&mut fleet, &running(&[100, 300]), "web-200", 0);
    let (vms, _) = read(&mut fleet, &running(&[100, 200, 300]), "web", 0);
    let names: BTreeSet<&str> = vms.iter().map(|vm| &*vm.vm).collect();
    assert_eq!(names, BTreeSet::from(["web", "web-200", "web-200-2"]));
}

/// A pid is reused while the VM that had it still shows its last values.
#[test]
fn vm_with_reused_pid_gets_another_name() {
    let mut fleet = Fleet::new(60);
    read(&mut fleet, &running(&[100]), "web", 0);
    read(&mut fleet, &running(&[100, 200]), "web", 0);
    read(&mut fleet, &running(&[100]), "web", 1);
    let mut again = running(&[100, 200]);
    let mut key = vm(200);
    key.start_ns += 1;
    again
        .threads
        .change(|threads| threads[1].owner = Owner::Vm(key));
    let (vms, _) = read(&mut fleet, &again, "web", 2);
    let names: BTreeSet<&str> = vms.iter().map(|vm| &*vm.vm).collect();
    assert_eq!(names, BTreeSet::from(["web", "web-200", "web-200-2"]));
}

/// 32 VMs: a random order would put the oldest first in only 1 of 32 runs.
#[test]
fn oldest_of_vms_with_same_name_keeps_plain_name() {
    let mut pids: Vec<u32> = (1..=32).map(|number| number * 100).collect();
    pids.rotate_left(7);
    let (vms, _) = read(&mut Fleet::new(0), &running(&pids), "web", 0);
    for vm in vms {
        let expected = match vm.pid {
            100 => "web".to_owned(),
            later => format!("web-{later}"),
        };
        assert_eq!(*vm.vm, *expected);
    }
}

//! The conservation law at the numeric limits. `crates/export/tests/history` tests it
//! over histories of a host.

use super::{facts, read, retired, switches, vcpu, vm};
use crate::facts::{Facts, ResidencyFact, ThreadFact};
use crate::fleet::registry::Fleet;
use crate::vocab::Owner;

/// Counters at their maximum: sums saturate there.
#[test]
fn sums_saturate_at_maximum() {
    let most = u64::MAX;
    let vcpus = [(101, 0), (102, 1)].map(|(tid, id)| ThreadFact {
        guest_ns: Some(most),
        ..vcpu(vm(100), tid, id, most)
    });
    let mut ended = retired(Owner::Vm(vm(100)), "CPU 0/KVM", most);
    (ended.class.vcpu_id, ended.guest_ns) = (Some(0), most);
    ended.switches = switches(most);
    let ran = ResidencyFact {
        vm: vm(100),
        vcpu_id: 0,
        pcpu: 1,
        run_ns: most,
    };
    let facts = Facts {
        residency: Some(vec![ran, ran]),
        ..facts(vcpus.into(), vec![ended, ended])
    };
    let (vms, _) = read(&mut Fleet::new(0), &facts, "a", 0);
    assert_eq!(vms[0].guest_ns, Some(most));
    assert_eq!(vms[0].vcpus[0].cpu_ns, most);
    assert_eq!(vms[0].vcpus[0].timeslices, Some(most));
    assert_eq!(vms[0].vcpus[0].residency_ns[&1], most);
}

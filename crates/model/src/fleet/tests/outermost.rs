//! Pressure of the cgroup that holds a whole pod.

use super::{CONTAINER, POD, facts, level, read, vcpu, vm};
use crate::facts::{Facts, LevelFact};
use crate::fleet::registry::Fleet;
use crate::vocab::CgroupId;

fn host(tgid: u32, levels: &[(CgroupId, u64)]) -> Facts {
    let levels = levels.iter().map(|(id, ns)| (*id, level(*ns)));
    Facts {
        levels: levels.collect(),
        ..facts(vec![vcpu(vm(tgid), tgid, 0, 1)], vec![])
    }
}

fn stalled_ns(fleet: &mut Fleet, facts: &Facts, now_ns: u64) -> Option<u64> {
    let (vms, _) = read(fleet, facts, "web", now_ns);
    assert_eq!(vms.len(), 1);
    vms[0].pressure?.cpu.some_ns
}

#[test]
fn pressure_is_that_of_the_pod_and_not_of_its_container() {
    let mut fleet = Fleet::new(0);
    let at = host(100, &[(CONTAINER, 90), (POD, 70)]);
    assert_eq!(stalled_ns(&mut fleet, &at, 0), Some(70));
}

#[test]
fn pressure_that_the_kernel_does_not_count_is_unknown() {
    let mut fleet = Fleet::new(0);
    assert_eq!(stalled_ns(&mut fleet, &host(100, &[]), 0), None);
    let mut without = host(100, &[]);
    without.levels.insert(POD, LevelFact::default());
    assert_eq!(stalled_ns(&mut fleet, &without, 0), None);
}

#[test]
fn restarted_vmm_continues_pressure_of_its_pod() {
    let mut fleet = Fleet::new(u64::MAX);
    assert_eq!(
        stalled_ns(&mut fleet, &host(100, &[(POD, 70)]), 0),
        Some(70)
    );
    let ended = facts(vec![], vec![]);
    assert_eq!(stalled_ns(&mut fleet, &ended, 1), Some(70), "it lingers");
    let again = host(200, &[(POD, 75)]);
    assert_eq!(stalled_ns(&mut fleet, &again, 2), Some(75));
}

//! Memory that the guest repeatedly releases and reuses, or keeps.

use super::{MS, feature, found, fresh, names, raises, use_cpu};
use crate::snapshot::{Check, Vm};
use crate::vocab::{DiscardSum, Role};

const MIB: u64 = 1 << 20;

#[test]
fn memory_that_goes_back_and_forth() {
    let churns = |mib| {
        move |vm: &mut Vm| {
            vm.memory.refault_bytes = Some(mib * MIB);
            let discards = vm.memory.discards.as_mut().expect("they are followed");
            discards.report = DiscardSum {
                events: 16,
                bytes: (mib + 10) * MIB,
                ns: 20 * MS,
            };
        }
    };
    let evidence = raises(Check::ReportingChurn, &fresh(), churns(420), churns(400));
    assert_eq!(
        evidence,
        "430 MiB reported as free and 420 MiB taken again in 10.0 s, of 2.0 GiB RAM; the VMM \
         spent 20 ms on giving it back (48 ms a GiB)"
    );
}

#[test]
fn an_idle_vm_that_keeps_its_memory() {
    let mut idle = fresh();
    idle.memory.features.free_page_reporting = feature(false);
    let holds = |mib, permille| {
        move |vm: &mut Vm| {
            vm.memory.resident_bytes = Some(mib * MIB);
            use_cpu(vm, Role::Vcpu, permille);
        }
    };
    let evidence = raises(Check::MemoryKept, &idle, holds(1800, 90), holds(1600, 90));
    assert_eq!(
        evidence,
        "the host holds 1.8 GiB for 2.0 GiB of RAM (88 %) while its vCPUs run 4 % of the time; \
         no reporting: the VMM's arguments"
    );
    let none = [] as [&str; 0];
    assert_eq!(
        names(&found(&idle, holds(1800, 120))),
        none,
        "it is at work"
    );
    assert_eq!(names(&found(&fresh(), holds(1800, 0))), none, "it reports");
    let huge = found(&idle, |vm| {
        holds(1800, 0)(vm);
        vm.memory.resident_huge_bytes = Some(1800 * MIB);
    });
    assert_eq!(names(&huge), none, "somebody set it aside");
    let mut unknown = idle.clone();
    unknown.memory.discards = None;
    assert_eq!(
        names(&found(&unknown, holds(1800, 0))),
        none,
        "it may have a balloon"
    );
}

//! Memory that the guest repeatedly releases and reuses, or keeps.

use super::{MS, WINDOW, feature, found, fresh, names, raises, use_cpu};
use crate::snapshot::{Check, Vm};
use crate::vocab::{DirtyLogging, DiscardSum, Role};

const MIB: u64 = 1 << 20;

#[test]
fn reported_memory_used_again_raises_reporting_churn() {
    let churns = |mib| {
        move |vm: &mut Vm| {
            vm.memory.refault_bytes = Some(mib * MIB);
            let discards = vm.memory.discards.as_mut().expect("they are tracked");
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
        "the guest reported 430 MiB of its 2.0 GiB RAM as free and used 420 MiB of it again in \
         10.0 s; the VMM spent 20 ms on releasing it (48 ms per GiB)"
    );
}

#[test]
fn idle_vm_without_reporting_raises_memory_kept() {
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
        "the host holds 1.8 GiB of the guest's 2.0 GiB RAM (88 %), whose vCPUs run 4 % of the \
         time; free page reporting is off: the VMM's arguments"
    );
    let none = [] as [&str; 0];
    assert_eq!(
        names(&found(&idle, holds(1800, 120))),
        none,
        "the VM is busy"
    );
    assert_eq!(
        names(&found(&fresh(), holds(1800, 0))),
        none,
        "reporting is on"
    );
    let huge = found(&idle, |vm| {
        holds(1800, 0)(vm);
        vm.memory.resident_huge_bytes = Some(1800 * MIB);
    });
    assert_eq!(names(&huge), none, "huge pages are reserved");
    let mut unknown = idle.clone();
    unknown.memory.discards = None;
    assert_eq!(
        names(&found(&unknown, holds(1800, 0))),
        none,
        "a balloon is possible"
    );
}

#[test]
fn writes_logged_for_whole_interval_raise_dirty_logging() {
    let logged_for = |ns| {
        move |vm: &mut Vm| {
            vm.memory.dirty_logging = Some(DirtyLogging {
                enabled: true,
                seen_ns: Some(ns),
            });
            vm.memory.faults = Some(30_000);
        }
    };
    let mut quiet = fresh();
    quiet.memory.faults = Some(0);
    let evidence = raises(
        Check::DirtyLogging,
        &quiet,
        logged_for(WINDOW),
        logged_for(WINDOW - MS),
    );
    assert_eq!(
        evidence,
        "KVM has logged the guest's writes for at least 10.0 s; KVM fixed 3000 page faults per \
         second"
    );
}

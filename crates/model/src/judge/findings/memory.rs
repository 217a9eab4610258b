//! Memory that the guest repeatedly releases and reuses or never releases, and memory whose
//! writes KVM logs.

use std::time::Duration;

use crate::judge::findings::bounds::Bounds;
use crate::judge::findings::text::{bytes, percent, time};
use crate::judge::interval::Interval;
use crate::snapshot::{Check, Finding};

const OPTED_OUT: &str = "an annotation of the pod turned it off";

pub(super) fn judge(over: &Interval, bounds: &Bounds) -> impl Iterator<Item = Finding> {
    [churn(over, bounds), kept(over, bounds), logged(over)]
        .into_iter()
        .flatten()
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn churn(over: &Interval, bounds: &Bounds) -> Option<Finding> {
    let used = over.memory();
    let (taken, report) = (used.refault_bytes?, used.discards?.report);
    let guest = over.now.memory.guest_bytes.filter(|bytes| *bytes > 0)?;
    let minutes = Duration::from_nanos(over.length_ns()).as_secs_f64() / 60.0;
    // Faults beyond the reported bytes can be first uses of memory, so they do not count.
    // An interval below one minute is not extrapolated: the amount per minute must really
    // occur.
    let again = share(taken.min(report.bytes), guest) / minutes.max(1.0);
    (again >= bounds.refault_per_minute).then(|| {
        let evidence = format!(
            "the guest reported {} of its {} RAM as free and used {} of it again in {}; the VMM \
             spent {} on releasing it ({} per GiB)",
            bytes(report.bytes),
            bytes(guest),
            bytes(taken),
            time(over.length_ns()),
            time(report.ns),
            time(per_gib(report.ns, report.bytes)),
        );
        Finding::new(
            Check::ReportingChurn,
            evidence,
            again / bounds.refault_per_minute,
        )
    })
}

/// Time per GiB, ns, if `bytes` took `ns`.
fn per_gib(ns: u64, bytes: u64) -> u64 {
    let ns = u128::from(ns) * (1 << 30) / u128::from(bytes.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Minimum guest RAM. Smaller VMs have little to release, and much of their resident
/// memory is the VMM's.
const KEPT_MIN_BYTES: u64 = 1 << 30;

fn kept(over: &Interval, bounds: &Bounds) -> Option<Finding> {
    let memory = &over.now.memory;
    let (guest, resident) = (memory.guest_bytes?, memory.resident_bytes?);
    let is_balloon_idle = match memory.discards {
        Some(discards) => discards.events() == 0,
        None => memory.features.balloon.is_absent(),
    };
    let vcpus = u32::try_from(over.vcpus().count()).unwrap_or(u32::MAX);
    let vcpu_ns = over.vcpus().map(|vcpu| vcpu.cpu_ns);
    let vcpu_ns = vcpu_ns.fold(0, u64::saturating_add);
    let busy = over.cores(vcpu_ns) / f64::from(vcpus.max(1));
    let held = share(resident, guest);
    let reporting = memory.features.free_page_reporting;
    let spec = over.now.pod_spec.as_ref();
    let is_opted_out = spec.is_some_and(|spec| spec.reporting_disabled);
    let is_kept = reporting.is_absent()
        && is_balloon_idle
        && guest >= KEPT_MIN_BYTES
        && memory.resident_huge_bytes.unwrap_or(0) == 0
        && vcpus > 0
        && busy <= bounds.kept_idle
        && held >= bounds.kept_resident;
    is_kept.then(|| {
        let evidence = format!(
            "the host holds {} of the guest's {} RAM ({}), whose vCPUs run {} of the time; free page \
             reporting is off: {}",
            bytes(resident),
            bytes(guest),
            percent(held),
            percent(busy),
            if is_opted_out { OPTED_OUT } else { reporting.reason }
        );
        Finding::new(Check::MemoryKept, evidence, held / bounds.kept_resident)
    })
}

fn logged(over: &Interval) -> Option<Finding> {
    let seen_ns = over.now.memory.dirty_logging?.seen_ns?;
    let faults = over.memory().faults;
    (seen_ns >= over.length_ns()).then(|| {
        let faults = faults.map_or_else(String::new, |faults| {
            format!(
                "; KVM fixed {:.0} page faults per second",
                over.per_second(faults)
            )
        });
        let seen = time(seen_ns);
        let evidence = format!("KVM has logged the guest's writes for at least {seen}{faults}");
        Finding::new(Check::DirtyLogging, evidence, 1.0)
    })
}

//! Memory that goes back and forth, or never comes back.

use std::time::Duration;

use super::{Bounds, Check, Finding, bytes, percent, time};
use crate::interval::Interval;

pub(super) fn judge(over: &Interval, bounds: &Bounds) -> impl Iterator<Item = Finding> {
    [churn(over, bounds), kept(over, bounds)]
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
    let per_minute = share(taken, guest) / minutes;
    (per_minute >= bounds.refault_per_minute && report.events > 0).then(|| {
        let evidence = format!(
            "{} reported as free and {} taken again in {}, of {} RAM: {} a minute; the VMM spent {} on giving it back ({} a GiB)",
            bytes(report.bytes),
            bytes(taken),
            time(over.length_ns()),
            bytes(guest),
            percent(per_minute),
            time(report.ns),
            time(per_gib(report.ns, report.bytes)),
        );
        Finding::new(
            Check::ReportingChurn,
            evidence,
            per_minute / bounds.refault_per_minute,
        )
    })
}

/// What a GiB took, where `bytes` took `ns`.
fn per_gib(ns: u64, bytes: u64) -> u64 {
    let ns = u128::from(ns) * (1 << 30) / u128::from(bytes.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn kept(over: &Interval, bounds: &Bounds) -> Option<Finding> {
    let memory = &over.now.memory;
    let (guest, resident) = (memory.guest_bytes?, memory.resident_bytes?);
    let has_balloon_at_work = memory
        .discards
        .is_some_and(|discards| discards.events() > 0);
    let vcpus = u32::try_from(over.vcpus().count()).unwrap_or(u32::MAX);
    let vcpu_ns = over.vcpus().map(|vcpu| vcpu.cpu_ns).sum();
    let busy = over.cores(vcpu_ns) / f64::from(vcpus.max(1));
    let held = share(resident, guest);
    let reporting = memory.features.free_page_reporting;
    let is_kept = reporting.is_absent()
        && !has_balloon_at_work
        && memory.resident_huge_bytes.unwrap_or(0) == 0
        && vcpus > 0
        && busy <= bounds.kept_idle
        && held >= bounds.kept_resident;
    is_kept.then(|| {
        let evidence = format!(
            "the host holds {} for {} of RAM ({}) while its vCPUs run {} of the time; no reporting: {}",
            bytes(resident),
            bytes(guest),
            percent(held),
            percent(busy),
            reporting.reason
        );
        Finding::new(Check::MemoryKept, evidence, held / bounds.kept_resident)
    })
}

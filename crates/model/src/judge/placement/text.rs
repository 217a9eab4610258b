//! Phrases of evidence.

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::judge::placement::location::LocatedVcpu;
use crate::vocab::CpuSet;
use crate::vocab::topology::host::HostTopology;

/// Maximum number of items in a sentence; the full list is a separate field.
const NAMED_MAX: usize = 8;

/// "1, 2 and 5", "1, 2, … and 40 more".
pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut items = items.into_iter();
    let mut named: Vec<String> = items
        .by_ref()
        .take(NAMED_MAX)
        .map(|item| item.to_string())
        .collect();
    let more = items.count();
    let last = match more {
        0 => named.pop(),
        more => Some(format!("{more} more")),
    };
    let mut text = named.join(", ");
    if let Some(last) = last {
        let and = if text.is_empty() { "" } else { " and " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{and}{last}");
    }
    text
}

/// "vCPU 1", "vCPUs 1 and 2".
pub(super) fn name_vcpus(ids: &[u32]) -> String {
    let word = if ids.len() == 1 { "vCPU" } else { "vCPUs" };
    format!("{word} {}", list(ids))
}

/// A time in seconds.
pub(super) fn seconds(ns: u64) -> String {
    format!("{:.1} s", Duration::from_nanos(ns).as_secs_f64())
}

/// Verb for the location of these vCPUs: pinned or measured.
pub(super) fn are_on(vcpus: &[&LocatedVcpu<'_>]) -> &'static str {
    if vcpus.iter().all(|vcpu| vcpu.pinned) {
        "are pinned to"
    } else {
        "ran on"
    }
}

/// The ids of vCPUs, lowest first.
pub(super) fn ids(vcpus: &[&LocatedVcpu<'_>]) -> Vec<u32> {
    let mut ids: Vec<u32> = vcpus.iter().map(|vcpu| vcpu.placement.id).collect();
    ids.sort_unstable();
    ids
}

/// The CPUs of vCPUs: those of the mask of a pinned vCPU, those of the core of a located
/// one, otherwise the online CPUs on which the vCPU ran.
pub(super) fn pcpus(host: &HostTopology, vcpus: &[&LocatedVcpu<'_>]) -> CpuSet {
    let mut pcpus = CpuSet::default();
    for vcpu in vcpus {
        match (vcpu.pinned, &vcpu.mask, vcpu.core) {
            (true, Some(mask), _) => pcpus.extend(mask.iter()),
            (_, _, Some(core)) => pcpus.extend(host.core_cpus(core.unit).iter().copied()),
            _ => {
                let ran = vcpu.placement.residency_ns.iter().map(|(cpu, _)| *cpu);
                pcpus.extend(ran.filter(|cpu| host.online().contains(*cpu)));
            }
        }
    }
    pcpus
}

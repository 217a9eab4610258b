//! Guest siblings and host siblings: `smt_split` and `smt_shared`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{are_on, ids, list, name_vcpus, pcpus, seconds};
use crate::judge::placement::found::{Cause, Found};
use crate::judge::placement::location::{LocatedHost, LocatedVcpu, LocatedVm};
use crate::judge::placement::types::CONCURRENT_PERCENT;
use crate::snapshot::{Pairs, Unjudged};
use crate::vocab::MismatchKind;

/// Maximum number of vCPUs of one guest core, or on one host core, that are compared in
/// pairs. Cores have at most 8 threads; a larger number is an error of the VMM, which the
/// first 64 already reveal.
const COMPARED_MAX: usize = 64;

/// Sibling pairs of a VM, and their mismatches.
pub(super) fn judge(
    located: &LocatedHost<'_>,
    vm: &LocatedVm<'_>,
) -> (Result<Pairs, Unjudged>, Vec<Found<'static>>) {
    if let Some(why) = unjudged(located, vm) {
        return (Err(why), Vec::new());
    }
    let mut pairs = Pairs::default();
    let mut found = split(located, vm, &mut pairs);
    found.extend(shared(located, vm, &mut pairs));
    (Ok(pairs), found)
}

fn unjudged(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> Option<Unjudged> {
    if !located.host.knows_cores() {
        Some(Unjudged::HostTopology)
    } else if located.host.threads_per_core().is_none_or(|most| most < 2) {
        Some(Unjudged::NoSmt)
    } else if vm.vcpus.iter().any(|vcpu| vcpu.placement.guest.is_none()) {
        Some(Unjudged::GuestTopology)
    } else {
        None
    }
}

fn split(located: &LocatedHost<'_>, vm: &LocatedVm<'_>, pairs: &mut Pairs) -> Vec<Found<'static>> {
    let guest_cores = grouped(vm, |vcpu, _| Some(vcpu.placement.guest?.core));
    let mut found = Vec::new();
    for vcpus in guest_cores.values() {
        let mut apart = 0;
        for (one, two) in compared(vcpus) {
            if host_core(one) == host_core(two) {
                pairs.aligned += 1;
            } else {
                apart += 1;
            }
        }
        pairs.split += apart;
        if apart == 0 {
            continue;
        }
        let cores: BTreeSet<u32> = vcpus.iter().filter_map(|vcpu| host_core(vcpu)).collect();
        found.push(Found {
            kind: MismatchKind::SmtSplit,
            vcpus: ids(vcpus),
            pcpus: pcpus(located.host, vcpus),
            evidence: format!(
                "{} are threads of one guest core, and {} pCPUs {} of host cores {}",
                name_vcpus(&ids(vcpus)),
                are_on(vcpus),
                pcpus(located.host, vcpus),
                list(cores),
            ),
            cause: cause(vcpus),
        });
    }
    found
}

fn shared(located: &LocatedHost<'_>, vm: &LocatedVm<'_>, pairs: &mut Pairs) -> Vec<Found<'static>> {
    let host_cores = grouped(vm, |_, core| Some(core));
    let mut avoidable = None;
    let mut found = Vec::new();
    for (core, vcpus) in &host_cores {
        let mut sharing: Vec<&LocatedVcpu<'_>> = Vec::new();
        for (one, two) in compared(vcpus) {
            let guest_core = |vcpu: &LocatedVcpu<'_>| vcpu.placement.guest.map(|guest| guest.core);
            if guest_core(one) == guest_core(two) {
                continue;
            }
            let pinned = one.pinned && two.pinned;
            let measured = || {
                let ran_ns = ns_on_core(located, *core, &[one, two]);
                let together_ns = vm.placement.window_ns.saturating_mul(CONCURRENT_PERCENT);
                ran_ns.saturating_mul(100) > together_ns
            };
            if pinned || measured() && *avoidable.get_or_insert_with(|| is_avoidable(located, vm)) {
                pairs.shared += 1;
                sharing.extend([one, two]);
            }
        }
        sharing.sort_unstable_by_key(|vcpu| vcpu.placement.id);
        sharing.dedup_by_key(|vcpu| vcpu.placement.id);
        if !sharing.is_empty() {
            found.push(sharing_one(located, vm, *core, &sharing));
        }
    }
    found
}

fn sharing_one(
    located: &LocatedHost<'_>,
    vm: &LocatedVm<'_>,
    core: u32,
    sharing: &[&LocatedVcpu<'_>],
) -> Found<'static> {
    let ran = if sharing.iter().all(|vcpu| vcpu.pinned) {
        String::new()
    } else {
        let ran = seconds(ns_on_core(located, core, sharing));
        format!(" for {ran} in {}", seconds(vm.placement.window_ns))
    };
    Found {
        kind: MismatchKind::SmtShared,
        vcpus: ids(sharing),
        pcpus: pcpus(located.host, sharing),
        evidence: format!(
            "{} are different cores of the guest, and {} pCPUs {} of one host core{ran}",
            name_vcpus(&ids(sharing)),
            are_on(sharing),
            pcpus(located.host, sharing),
        ),
        cause: cause(sharing),
    }
}

fn cause(vcpus: &[&LocatedVcpu<'_>]) -> Cause<'static> {
    if vcpus.iter().all(|vcpu| vcpu.pinned) {
        Cause::Pins
    } else {
        Cause::Scheduler
    }
}

/// CPU time of vCPUs on a core, ns.
fn ns_on_core(located: &LocatedHost<'_>, core: u32, vcpus: &[&LocatedVcpu<'_>]) -> u64 {
    let cpus = located.host.core_cpus(core);
    let ran = vcpus.iter().map(|vcpu| vcpu.ns_on_core(cpus));
    ran.fold(0, u64::saturating_add)
}

/// Whether the VM could have had a host core for each guest core: its masks contain
/// enough cores, and enough CPU time for all vCPUs that may run there.
fn is_avoidable(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> bool {
    let Some(allowed) = vm.allowed() else {
        return false;
    };
    let guests = vm.vcpus.iter().filter_map(|vcpu| vcpu.placement.guest);
    let guest_cores: BTreeSet<u32> = guests.map(|guest| guest.core).collect();
    let cores = located.cores_among(&allowed);
    guest_cores.len() <= cores && located.milli_allowed_on(&allowed) <= cores as u64 * 1000
}

fn host_core(vcpu: &LocatedVcpu<'_>) -> Option<u32> {
    vcpu.core.map(|core| core.unit)
}

/// The vCPUs that are located on a core, grouped by `key` of the vCPU and its core.
fn grouped<'a>(
    vm: &LocatedVm<'a>,
    key: impl Fn(&LocatedVcpu<'_>, u32) -> Option<u32>,
) -> BTreeMap<u32, Vec<&'a LocatedVcpu<'a>>> {
    let mut groups: BTreeMap<u32, Vec<&LocatedVcpu<'_>>> = BTreeMap::new();
    for vcpu in vm.vcpus {
        if let Some(key) = host_core(vcpu).and_then(|core| key(vcpu, core)) {
            groups.entry(key).or_default().push(vcpu);
        }
    }
    groups
}

/// Pairs of vCPUs, except those pinned to the same single pCPU, which are an overlap.
fn compared<'a>(
    vcpus: &'a [&'a LocatedVcpu<'a>],
) -> impl Iterator<Item = (&'a LocatedVcpu<'a>, &'a LocatedVcpu<'a>)> {
    let vcpus = &vcpus[..vcpus.len().min(COMPARED_MAX)];
    let pairs = vcpus.iter().enumerate().flat_map(|(index, one)| {
        let later = &vcpus[index + 1..];
        later.iter().map(|two| (*one, *two))
    });
    pairs.filter(|(one, two)| one.only_cpu().is_none() || one.only_cpu() != two.only_cpu())
}

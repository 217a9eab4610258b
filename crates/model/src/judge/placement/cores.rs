//! Guest siblings and host siblings: `smt_split` and `smt_shared`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{are_on, ids, list, pcpus, vcpus};
use crate::judge::placement::seat::{Seat, Seated, SeatedVm};
use crate::judge::placement::types::SIDE_BY_SIDE_PERCENT;
use crate::snapshot::{Mismatch, Pairs, Unjudged};
use crate::vocab::MismatchKind;

/// Maximum number of vCPUs of one guest core, or on one host core, that are compared in
/// pairs. Cores have at most 8 threads; a larger number is an error of the VMM, which the
/// first 64 already reveal.
const COMPARED_MAX: usize = 64;

/// Sibling pairs of a VM, and their mismatches.
pub(super) fn judge(
    seated: &Seated<'_>,
    vm: &SeatedVm<'_>,
) -> (Result<Pairs, Unjudged>, Vec<Mismatch>) {
    if let Some(why) = unjudged(seated, vm) {
        return (Err(why), Vec::new());
    }
    let mut pairs = Pairs::default();
    let mut found = split(seated, vm, &mut pairs);
    found.extend(shared(seated, vm, &mut pairs));
    (Ok(pairs), found)
}

fn unjudged(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> Option<Unjudged> {
    if !seated.host.knows_cores() {
        Some(Unjudged::HostTopology)
    } else if seated.host.threads_per_core().is_none_or(|most| most < 2) {
        Some(Unjudged::NoSmt)
    } else if vm.seats.iter().any(|seat| seat.vcpu.guest.is_none()) {
        Some(Unjudged::GuestTopology)
    } else {
        None
    }
}

fn split(seated: &Seated<'_>, vm: &SeatedVm<'_>, pairs: &mut Pairs) -> Vec<Mismatch> {
    let guest_cores = grouped(vm, |seat, _| Some(seat.vcpu.guest?.core));
    let mut found = Vec::new();
    for seats in guest_cores.values() {
        let mut apart = 0;
        for (one, two) in compared(seats) {
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
        let cores: BTreeSet<u32> = seats.iter().filter_map(|seat| host_core(seat)).collect();
        let pinned = seats.iter().all(|seat| seat.pinned);
        found.push(Mismatch {
            kind: MismatchKind::SmtSplit,
            vcpus: ids(seats),
            pcpus: pcpus(seated.host, seats),
            evidence: format!(
                "{} are threads of one guest core, and {} pCPUs {} of host cores {}",
                vcpus(&ids(seats)),
                are_on(seats),
                pcpus(seated.host, seats),
                list(cores),
            ),
            remedy: if pinned {
                "pin the threads of a guest core to the threads of one host core; in KubeVirt \
                 set the CPU manager's full-pcpus-only option and as many guest threads a core \
                 as the host has"
            } else {
                "tell a floating guest one thread a core (threads=1), or pin its vCPUs"
            },
        });
    }
    found
}

fn shared(seated: &Seated<'_>, vm: &SeatedVm<'_>, pairs: &mut Pairs) -> Vec<Mismatch> {
    let host_cores = grouped(vm, |_, core| Some(core));
    let mut avoidable = None;
    let mut found = Vec::new();
    for (core, seats) in &host_cores {
        let mut sharing: Vec<&Seat<'_>> = Vec::new();
        for (one, two) in compared(seats) {
            let guest_core = |seat: &Seat<'_>| seat.vcpu.guest.map(|guest| guest.core);
            if guest_core(one) == guest_core(two) {
                continue;
            }
            let pinned = one.pinned && two.pinned;
            let measured = || {
                let cpus = seated.host.core_cpus(*core);
                let ran_ns = one.ns_on_core(cpus).saturating_add(two.ns_on_core(cpus));
                let together_ns = vm.placement.window_ns.saturating_mul(SIDE_BY_SIDE_PERCENT);
                ran_ns.saturating_mul(100) > together_ns
            };
            if pinned || measured() && *avoidable.get_or_insert_with(|| is_avoidable(seated, vm)) {
                pairs.shared += 1;
                sharing.extend([one, two]);
            }
        }
        sharing.sort_unstable_by_key(|seat| seat.vcpu.id);
        sharing.dedup_by_key(|seat| seat.vcpu.id);
        if !sharing.is_empty() {
            found.push(sharing_one(seated, *core, &sharing));
        }
    }
    found
}

fn sharing_one(seated: &Seated<'_>, core: u32, sharing: &[&Seat<'_>]) -> Mismatch {
    let pinned = sharing.iter().all(|seat| seat.pinned);
    Mismatch {
        kind: MismatchKind::SmtShared,
        vcpus: ids(sharing),
        pcpus: pcpus(seated.host, sharing),
        evidence: format!(
            "{} are cores of their own for the guest, and {} the threads {} of host core {core}{}",
            vcpus(&ids(sharing)),
            are_on(sharing),
            pcpus(seated.host, sharing),
            if pinned { "" } else { ", side by side" },
        ),
        remedy: if pinned {
            "tell the guest as many threads a core as the host has, in the order of the pins; or \
             pin every guest core to a host core of its own"
        } else {
            "pin the vCPUs, or tell the guest the threads that it gets"
        },
    }
}

/// Whether the VM could have had a host core for each guest core: its masks contain
/// enough cores, and enough CPU time for all vCPUs that may run there.
fn is_avoidable(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> bool {
    let Some(allowed) = vm.allowed() else {
        return false;
    };
    let guests = vm.seats.iter().filter_map(|seat| seat.vcpu.guest);
    let guest_cores: BTreeSet<u32> = guests.map(|guest| guest.core).collect();
    let cores = seated.cores_among(&allowed);
    guest_cores.len() <= cores && seated.milli_wanting(&allowed) <= cores as u64 * 1000
}

fn host_core(seat: &Seat<'_>) -> Option<u32> {
    seat.core.map(|core| core.unit)
}

/// The vCPUs that are located on a core, grouped by `key` of the vCPU and its core.
fn grouped<'a>(
    vm: &SeatedVm<'a>,
    key: impl Fn(&Seat<'_>, u32) -> Option<u32>,
) -> BTreeMap<u32, Vec<&'a Seat<'a>>> {
    let mut groups: BTreeMap<u32, Vec<&Seat<'_>>> = BTreeMap::new();
    for seat in vm.seats {
        if let Some(key) = host_core(seat).and_then(|core| key(seat, core)) {
            groups.entry(key).or_default().push(seat);
        }
    }
    groups
}

/// Pairs of vCPUs, except those pinned to the same single pCPU, which are an overlap.
fn compared<'a>(seats: &'a [&'a Seat<'a>]) -> impl Iterator<Item = (&'a Seat<'a>, &'a Seat<'a>)> {
    let seats = &seats[..seats.len().min(COMPARED_MAX)];
    let pairs = seats.iter().enumerate().flat_map(|(index, one)| {
        let later = &seats[index + 1..];
        later.iter().map(|two| (*one, *two))
    });
    pairs.filter(|(one, two)| one.only_cpu().is_none() || one.only_cpu() != two.only_cpu())
}

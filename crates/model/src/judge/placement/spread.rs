//! VMs that are spread over more nodes or caches than they need: `numa_split`,
//! `llc_split` and `remote_memory`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{are_on, ids, list, pcpus, vcpus};
use crate::judge::placement::seat::{Seat, Seated, SeatedVm, Sits};
use crate::judge::placement::types::REMOTE_PERCENT;
use crate::snapshot::Mismatch;
use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::{CpuSet, MismatchKind};

/// vCPUs that are close to each other in the guest's topology.
type Unit<'a> = Vec<&'a Seat<'a>>;

/// Packages that are spread over several nodes. If each package has one vCPU, the whole
/// VM.
pub(super) fn nodes(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> Vec<Mismatch> {
    if vm.placement.guest_nodes.is_some_and(|nodes| nodes > 1) {
        return Vec::new();
    }
    let Some(packages) = units(vm, |guest| guest.package) else {
        return Vec::new();
    };
    let default = packages.values().all(|package| package.len() == 1);
    let judged: Vec<Unit<'_>> = if default {
        let all: Unit<'_> = vm.seats.iter().collect();
        let one_each = packages.len() == sits_on(&all, |seat| seat.node).len();
        if one_each { Vec::new() } else { vec![all] }
    } else {
        packages.into_values().collect()
    };
    judged
        .iter()
        .filter_map(|unit| node_split(seated, vm, unit, default))
        .collect()
}

fn node_split(
    seated: &Seated<'_>,
    vm: &SeatedVm<'_>,
    unit: &[&Seat<'_>],
    default: bool,
) -> Option<Mismatch> {
    let nodes = sits_on(unit, |seat| seat.node);
    if nodes.len() < 2 {
        return None;
    }
    let sitting = || unit.iter().filter_map(|seat| seat.node);
    let held = sitting().all(|node| node.held);
    let fits = |(node, cpus): (u32, &CpuSet)| {
        if held {
            return needed_cores(seated, unit) <= seated.cores_among(cpus);
        }
        let allowed = vm.allowed().map(|allowed| allowed.intersection(cpus));
        allowed.is_some_and(|allowed| has_room(seated, unit, node, &allowed))
    };
    if !seated.host.nodes().any(fits) {
        return None;
    }
    let what = if default {
        "all of a guest that was told of no nodes"
    } else {
        "of one guest package"
    };
    Some(Mismatch {
        kind: MismatchKind::NumaSplit,
        vcpus: ids(unit),
        pcpus: pcpus(seated.host, unit),
        evidence: format!(
            "{}, {what}, {} NUMA nodes {}, and would fit into one",
            vcpus(&ids(unit)),
            are_on(unit),
            list(nodes),
        ),
        remedy: if held {
            "give the VM CPUs of one node (the kubelet's Topology Manager, policy \
             single-numa-node), or tell the guest its nodes (guestMappingPassthrough in KubeVirt)"
        } else {
            "confine the VM to one node (a cpuset, or the kubelet's Topology Manager)"
        },
    })
}

/// Whether a node has, in addition to other usage, a host core for each guest core and
/// enough CPU time for the vCPUs.
fn has_room(seated: &Seated<'_>, unit: &[&Seat<'_>], node: u32, allowed: &CpuSet) -> bool {
    let cores = seated.cores_among(allowed);
    let add = |sum: u64, seat: &&Seat<'_>| sum.saturating_add(seat.used_milli);
    let used = unit.iter().fold(0, add);
    let on_node = |seat: &&&Seat<'_>| seat.node.is_some_and(|sits| sits.unit == node);
    let own = unit.iter().filter(on_node).fold(0, add);
    let others = seated.milli_on_node(node).saturating_sub(own);
    needed_cores(seated, unit) <= cores && others.saturating_add(used) <= cores as u64 * 1000
}

/// Pinned dies that are spread over several last-level caches of one node.
pub(super) fn caches(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> Vec<Mismatch> {
    let Some(dies) = units(vm, |guest| guest.die) else {
        return Vec::new();
    };
    dies.values()
        .filter_map(|die| cache_split(seated, die))
        .collect()
}

fn cache_split(seated: &Seated<'_>, die: &[&Seat<'_>]) -> Option<Mismatch> {
    let pinned = die.iter().all(|seat| seat.pinned);
    let caches = sits_on(die, |seat| seat.llc);
    let nodes = sits_on(die, |seat| seat.node);
    // A split over nodes is worse, so only that one is reported.
    if !pinned || caches.len() < 2 || nodes.len() > 1 {
        return None;
    }
    let mut there = seated.host.llcs().filter(|(llc, _)| {
        let node = seated.host.place(*llc).and_then(|place| place.node);
        node.is_none_or(|node| nodes.contains(&node))
    });
    let needed = needed_cores(seated, die);
    if !there.any(|(_, cpus)| needed <= seated.cores_among(cpus)) {
        return None;
    }
    Some(Mismatch {
        kind: MismatchKind::LlcSplit,
        vcpus: ids(die),
        pcpus: pcpus(seated.host, die),
        evidence: format!(
            "{}, of one guest die, are pinned to {} last-level caches (of pCPUs {}), and would \
             fit into one",
            vcpus(&ids(die)),
            caches.len(),
            list(&caches),
        ),
        remedy: "pin the vCPUs inside one cache (the CPU manager's \
                 prefer-align-cpus-by-uncorecache option), or tell the guest a die for each",
    })
}

/// Memory on nodes where no vCPU of the VM is located.
pub(super) fn memory(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> Option<Mismatch> {
    let seats: Unit<'_> = vm.seats.iter().collect();
    let all_sit = !seats.is_empty() && seats.iter().all(|seat| seat.node.is_some());
    let nodes = sits_on(&seats, |seat| seat.node);
    let by_node = vm.placement.memory_by_node.as_ref().filter(|_| all_sit)?;
    let with_cpus = || {
        let known = |(node, _): &&(u32, u64)| seated.host.node_cpus(*node).is_some();
        by_node.iter().filter(known)
    };
    let far = || with_cpus().filter(|(node, _)| !nodes.contains(node));
    let sum = |bytes: u64, (_, more): &(u32, u64)| bytes.saturating_add(*more);
    let (total, remote) = (with_cpus().fold(0, sum), far().fold(0, sum));
    if remote == 0 || remote.saturating_mul(100) <= total.saturating_mul(REMOTE_PERCENT) {
        return None;
    }
    Some(Mismatch {
        kind: MismatchKind::RemoteMemory,
        vcpus: ids(&seats),
        pcpus: pcpus(seated.host, &seats),
        evidence: format!(
            "{} MiB of {} MiB of memory are on NUMA nodes {}, while all vCPUs {} nodes {}",
            remote >> 20,
            total >> 20,
            list(far().map(|(node, _)| node)),
            are_on(&seats),
            list(nodes),
        ),
        remedy: "give the VM CPUs and memory of one node (the kubelet's Memory Manager, or \
                 numatune in libvirt)",
    })
}

/// The VM's vCPUs grouped by the guest's topology; `None` if the position of a vCPU is
/// unknown.
fn units<'a>(
    vm: &SeatedVm<'a>,
    number: impl Fn(&GuestPlace) -> u32,
) -> Option<BTreeMap<u32, Unit<'a>>> {
    let mut units: BTreeMap<u32, Unit<'_>> = BTreeMap::new();
    for seat in vm.seats {
        let guest = seat.vcpu.guest.as_ref()?;
        units.entry(number(guest)).or_default().push(seat);
    }
    Some(units)
}

fn sits_on(seats: &[&Seat<'_>], level: impl Fn(&Seat<'_>) -> Option<Sits>) -> BTreeSet<u32> {
    let sitting = seats.iter().filter_map(|seat| level(seat));
    sitting.map(|sits| sits.unit).collect()
}

/// Number of host cores that these vCPUs need if no two guest cores share one.
fn needed_cores(seated: &Seated<'_>, seats: &[&Seat<'_>]) -> usize {
    let threads = seated.host.threads_per_core().unwrap_or(1);
    let mut guest_cores: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for seat in seats {
        let core = seat.vcpu.guest.map(|guest| guest.core);
        *guest_cores.entry(core).or_default() += 1;
    }
    let cores = guest_cores.values().map(|vcpus| vcpus.div_ceil(threads));
    cores.sum()
}

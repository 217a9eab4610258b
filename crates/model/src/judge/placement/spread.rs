//! VMs that are spread over more nodes or caches than they need: `numa_split`,
//! `llc_split` and `remote_memory`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::text::{are_on, ids, list, name_vcpus, pcpus};
use crate::judge::placement::found::{Cause, Found};
use crate::judge::placement::location::{LocatedHost, LocatedVcpu, LocatedVm, Location};
use crate::judge::placement::types::REMOTE_PERCENT;
use crate::vocab::topology::guest::GuestPlace;
use crate::vocab::{CpuSet, MismatchKind};

/// vCPUs that are close to each other in the guest's topology.
type Unit<'a> = Vec<&'a LocatedVcpu<'a>>;

/// Packages that are spread over several nodes. If each package has one vCPU, the whole
/// VM.
pub(super) fn nodes(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> Vec<Found<'static>> {
    if vm.placement.guest_nodes.is_some_and(|nodes| nodes > 1) {
        return Vec::new();
    }
    let Some(packages) = units(vm, |guest| guest.package) else {
        return Vec::new();
    };
    let default = packages.values().all(|package| package.len() == 1);
    let judged: Vec<Unit<'_>> = if default {
        let all: Unit<'_> = vm.vcpus.iter().collect();
        let one_each = packages.len() == located_on(&all, |vcpu| vcpu.node).len();
        if one_each { Vec::new() } else { vec![all] }
    } else {
        packages.into_values().collect()
    };
    judged
        .iter()
        .filter_map(|unit| node_split(located, vm, unit, default))
        .collect()
}

fn node_split(
    located: &LocatedHost<'_>,
    vm: &LocatedVm<'_>,
    unit: &[&LocatedVcpu<'_>],
    default: bool,
) -> Option<Found<'static>> {
    let nodes = located_on(unit, |vcpu| vcpu.node);
    if nodes.len() < 2 {
        return None;
    }
    let by_mask = unit
        .iter()
        .all(|vcpu| vcpu.node.is_none_or(|node| node.by_mask));
    let fits = |(node, cpus): &(u32, &CpuSet)| {
        if by_mask {
            return needed_cores(located, unit) <= located.cores_among(cpus);
        }
        let allowed = vm.allowed().map(|allowed| allowed.intersection(cpus));
        allowed.is_some_and(|allowed| has_room(located, unit, *node, &allowed))
    };
    let vcpus_on = |node: u32| {
        let there = |vcpu: &&&LocatedVcpu<'_>| vcpu.node.is_some_and(|one| one.unit == node);
        unit.iter().filter(there).count()
    };
    let fitting = located.host.nodes().filter(fits).map(|(node, _)| node);
    let node = fitting.max_by_key(|node| (vcpus_on(*node), Reverse(*node)))?;
    let part = if default {
        "all of the guest"
    } else {
        "of one guest package"
    };
    Some(Found {
        kind: MismatchKind::NumaSplit,
        vcpus: ids(unit),
        pcpus: pcpus(located.host, unit),
        evidence: format!(
            "{}, {part}, {} NUMA nodes {}, and would fit into one",
            name_vcpus(&ids(unit)),
            are_on(unit),
            list(nodes),
        ),
        cause: if unit.iter().all(|vcpu| vcpu.pinned) {
            Cause::Pins
        } else {
            Cause::Nodes(node)
        },
    })
}

/// Whether a node has, in addition to other usage, a host core for each guest core and
/// enough CPU time for the vCPUs.
fn has_room(
    located: &LocatedHost<'_>,
    unit: &[&LocatedVcpu<'_>],
    node: u32,
    allowed: &CpuSet,
) -> bool {
    let cores = located.cores_among(allowed);
    let add = |sum: u64, vcpu: &&LocatedVcpu<'_>| sum.saturating_add(vcpu.used_milli);
    let used = unit.iter().fold(0, add);
    let on_node = |vcpu: &&&LocatedVcpu<'_>| vcpu.node.is_some_and(|one| one.unit == node);
    let own = unit.iter().filter(on_node).fold(0, add);
    let others = located.milli_on_node(node).saturating_sub(own);
    needed_cores(located, unit) <= cores && others.saturating_add(used) <= cores as u64 * 1000
}

/// Pinned dies that are spread over several last-level caches of one node.
pub(super) fn caches(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> Vec<Found<'static>> {
    let Some(dies) = units(vm, |guest| guest.die) else {
        return Vec::new();
    };
    dies.values()
        .filter_map(|die| cache_split(located, die))
        .collect()
}

fn cache_split(located: &LocatedHost<'_>, die: &[&LocatedVcpu<'_>]) -> Option<Found<'static>> {
    let pinned = die.iter().all(|vcpu| vcpu.pinned);
    let caches = located_on(die, |vcpu| vcpu.llc);
    let nodes = located_on(die, |vcpu| vcpu.node);
    // A split over nodes is worse, so only that one is reported.
    if !pinned || caches.len() < 2 || nodes.len() > 1 {
        return None;
    }
    let mut there = located.host.llcs().filter(|(llc, _)| {
        let node = located.host.place(*llc).and_then(|place| place.node);
        node.is_none_or(|node| nodes.contains(&node))
    });
    let needed = needed_cores(located, die);
    if !there.any(|(_, cpus)| needed <= located.cores_among(cpus)) {
        return None;
    }
    Some(Found {
        kind: MismatchKind::LlcSplit,
        vcpus: ids(die),
        pcpus: pcpus(located.host, die),
        evidence: format!(
            "{}, of one guest die, are pinned to {} last-level caches (of pCPUs {}), and would \
             fit into one",
            name_vcpus(&ids(die)),
            caches.len(),
            list(&caches),
        ),
        cause: Cause::Pins,
    })
}

/// Memory on nodes where no vCPU of the VM is located.
pub(super) fn memory(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> Option<Found<'static>> {
    let vcpus: Unit<'_> = vm.vcpus.iter().collect();
    let all_located = !vcpus.is_empty() && vcpus.iter().all(|vcpu| vcpu.node.is_some());
    let nodes = located_on(&vcpus, |vcpu| vcpu.node);
    let by_node = vm
        .placement
        .memory_by_node
        .as_ref()
        .filter(|_| all_located)?;
    let with_cpus = || {
        let known = |(node, _): &&(u32, u64)| located.host.node_cpus(*node).is_some();
        by_node.iter().filter(known)
    };
    let far = || with_cpus().filter(|(node, _)| !nodes.contains(node));
    let sum = |bytes: u64, (_, more): &(u32, u64)| bytes.saturating_add(*more);
    let (total, remote) = (with_cpus().fold(0, sum), far().fold(0, sum));
    if remote == 0 || remote.saturating_mul(100) <= total.saturating_mul(REMOTE_PERCENT) {
        return None;
    }
    let from: Vec<u32> = far()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(node, _)| *node)
        .collect();
    Some(Found {
        kind: MismatchKind::RemoteMemory,
        vcpus: ids(&vcpus),
        pcpus: pcpus(located.host, &vcpus),
        evidence: format!(
            "{} MiB of {} MiB of memory ({} %) are on NUMA nodes {}, while all vCPUs {} nodes {}",
            remote >> 20,
            total >> 20,
            u128::from(remote) * 100 / u128::from(total),
            list(&from),
            are_on(&vcpus),
            list(&nodes),
        ),
        cause: Cause::Memory {
            from,
            to: nodes.into_iter().collect(),
        },
    })
}

/// The VM's vCPUs grouped by the guest's topology; `None` if the position of a vCPU is
/// unknown.
fn units<'a>(
    vm: &LocatedVm<'a>,
    number: impl Fn(&GuestPlace) -> u32,
) -> Option<BTreeMap<u32, Unit<'a>>> {
    let mut units: BTreeMap<u32, Unit<'_>> = BTreeMap::new();
    for vcpu in vm.vcpus {
        let guest = vcpu.placement.guest.as_ref()?;
        units.entry(number(guest)).or_default().push(vcpu);
    }
    Some(units)
}

fn located_on(
    vcpus: &[&LocatedVcpu<'_>],
    level: impl Fn(&LocatedVcpu<'_>) -> Option<Location>,
) -> BTreeSet<u32> {
    let located = vcpus.iter().filter_map(|vcpu| level(vcpu));
    located.map(|one| one.unit).collect()
}

/// Number of host cores that these vCPUs need if no two guest cores share one.
fn needed_cores(located: &LocatedHost<'_>, vcpus: &[&LocatedVcpu<'_>]) -> usize {
    let threads = located.host.threads_per_core().unwrap_or(1);
    let mut guest_cores: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for vcpu in vcpus {
        let core = vcpu.placement.guest.map(|guest| guest.core);
        *guest_cores.entry(core).or_default() += 1;
    }
    let cores = guest_cores.values().map(|vcpus| vcpus.div_ceil(threads));
    cores.sum()
}

//! Targets for misplaced vCPUs: each guest core gets host cores to which no other vCPU is
//! pinned, in one node and one last-level cache where that is possible.
//!
//! VMs are planned in their order, and no core is suggested to two VMs: all suggestions
//! for a host can be carried out together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::judge::placement::found::Found;
use crate::judge::placement::location::{
    LocatedHost, LocatedVcpu, LocatedVm, Location, is_vmm_helper, only_core,
};
use crate::judge::placement::pins::Pins;
use crate::judge::placement::types::VcpuPlacement;
use crate::vocab::topology::host::{HostPlace, HostTopology};
use crate::vocab::{CpuSet, MismatchKind};

/// The vCPUs of one guest core, in the order of their threads.
type GuestCore<'a> = Vec<&'a LocatedVcpu<'a>>;

/// Cores to which vCPUs can be pinned.
pub(super) struct FreeCores<'a> {
    located: &'a LocatedHost<'a>,
    pins: &'a Pins,
    /// VMs without pins that are confined to a cpuset, by core.
    confined: BTreeMap<u32, Vec<usize>>,
    suggested: BTreeSet<u32>,
}

impl<'a> FreeCores<'a> {
    pub(super) fn new(located: &'a LocatedHost<'a>, pins: &'a Pins) -> Self {
        let mut confined: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for index in 0..located.vms.len() {
            let Some(cpus) = cpuset(located, &located.vm(index)) else {
                continue;
            };
            let cores = cpus.iter().filter_map(|cpu| located.host.place(cpu)?.core);
            for core in cores.collect::<BTreeSet<_>>() {
                confined.entry(core).or_default().push(index);
            }
        }
        Self {
            located,
            pins,
            confined,
            suggested: BTreeSet::new(),
        }
    }

    /// The cores to which no vCPU is pinned or confined, except the `moving` vCPUs of VM
    /// `index`. A VM that is confined itself gets only cores of its cpuset.
    fn free(&self, index: usize, moving: &BTreeSet<u32>) -> BTreeSet<u32> {
        let host = self.located.host;
        let cpuset = cpuset(self.located, &self.located.vm(index));
        let is_free = |core: &u32| {
            let mut pinned = self.pins.on_core(*core).iter();
            let moves = |(vm, id): &(usize, u32)| *vm == index && moving.contains(id);
            let confined = self.confined.get(core).into_iter().flatten();
            let mut cpus = host.core_cpus(*core).iter();
            let is_allowed = cpuset
                .as_ref()
                .is_none_or(|cpuset| cpus.all(|cpu| cpuset.contains(*cpu)));
            let is_exclusive = confined.copied().all(|vm| vm == index);
            is_allowed && is_exclusive && !self.suggested.contains(core) && pinned.all(moves)
        };
        let cores = host.cores().map(|(core, _)| core);
        cores.filter(is_free).collect()
    }

    /// CPUs of one core for the helpers of VM `index`: on a node of its vCPUs if possible,
    /// and the highest core, since plans prefer low ones.
    pub(super) fn for_helpers(&self, index: usize) -> Option<CpuSet> {
        let host = self.located.host;
        let vcpus = self.located.vm(index).vcpus;
        let nodes: BTreeSet<u32> = vcpus
            .iter()
            .filter_map(|vcpu| vcpu.node.map(|node| node.unit))
            .collect();
        let is_near = |core: u32| {
            let node = host.place(core).and_then(|place| place.node);
            node.is_some_and(|node| nodes.contains(&node))
        };
        let free = self.free(index, &BTreeSet::new());
        let core = free
            .into_iter()
            .max_by_key(|core| (is_near(*core), *core))?;
        Some(host.core_cpus(core).iter().copied().collect())
    }

    /// Reserves the cores of a plan.
    pub(super) fn suggest(&mut self, plan: &Plan) {
        let host = self.located.host;
        let cores = plan.targets.values();
        self.suggested
            .extend(cores.filter_map(|cpu| host.place(*cpu)?.core));
    }

    /// A plan that moves the guest cores of the `misplaced` vCPUs of VM `index`. `None` if
    /// there are too few free cores, or the host's cores are unknown.
    pub(super) fn plan(&self, index: usize, misplaced: &BTreeSet<u32>) -> Option<Plan> {
        let host = self.located.host;
        if !host.knows_cores() {
            return None;
        }
        let vm = self.located.vm(index);
        let packages = moving_packages(&vm, misplaced);
        let guest_cores = || packages.values().flat_map(BTreeMap::values).flatten();
        let moving = guest_cores().flatten().map(|vcpu| vcpu.placement.id);
        let mut open = self.free(index, &moving.collect());
        for helper in vm.placement.helpers.iter().filter(|one| is_vmm_helper(one)) {
            let mask = helper.affinity.as_deref();
            let core = mask.and_then(|mask| only_core(host, mask.iter().next()?, mask));
            if let Some(core) = core {
                open.remove(&core);
            }
        }
        let mut targets = BTreeMap::new();
        for dies in packages.values() {
            let package: Vec<&GuestCore<'_>> = dies.values().flatten().collect();
            let node = best(host, host.nodes(), &open, &package, |vcpu| vcpu.node);
            for die in dies.values() {
                let node = node
                    .as_ref()
                    .map_or_else(|| open.clone(), |node| &open & node);
                let die: Vec<&GuestCore<'_>> = die.iter().collect();
                let llc = best(host, host.llcs(), &node, &die, |vcpu| vcpu.llc);
                let cores = llc.unwrap_or(node);
                for guest_core in die {
                    targets.extend(take(host, guest_core, &cores, &mut open)?);
                }
            }
        }
        let guest_cores = guest_cores().map(|core| core.iter().map(|vcpu| vcpu.placement.id));
        Some(Plan {
            guest_cores: guest_cores.map(Iterator::collect).collect(),
            targets,
        })
    }
}

/// The CPUs to which a VM without pins is confined; `None` if they are all online CPUs or
/// unknown.
fn cpuset(located: &LocatedHost<'_>, vm: &LocatedVm<'_>) -> Option<CpuSet> {
    let cpus = vm.allowed().filter(|_| vm.pinned() == 0)?;
    (!cpus.is_empty() && !located.host.online().is_subset(&cpus)).then_some(cpus)
}

/// The guest cores that contain a misplaced vCPU, by package and die. If each vCPU has a
/// package (the default of VMMs) or the guest's topology is unknown, all vCPUs count as
/// one die of one-vCPU cores.
fn moving_packages<'a>(
    vm: &LocatedVm<'a>,
    misplaced: &BTreeSet<u32>,
) -> BTreeMap<u32, BTreeMap<u32, Vec<GuestCore<'a>>>> {
    let guests: Option<Vec<_>> = vm.vcpus.iter().map(|vcpu| vcpu.placement.guest).collect();
    let packages: BTreeSet<u32> = guests.iter().flatten().map(|guest| guest.package).collect();
    let has_packages = guests.is_some() && packages.len() < vm.vcpus.len();
    let mut by_core: BTreeMap<(u32, u32, u32), GuestCore<'a>> = BTreeMap::new();
    for vcpu in vm.vcpus {
        let key = match vcpu.placement.guest.filter(|_| has_packages) {
            Some(guest) => (guest.package, guest.die, guest.core),
            None => (0, 0, vcpu.placement.id),
        };
        by_core.entry(key).or_default().push(vcpu);
    }
    let mut found: BTreeMap<u32, BTreeMap<u32, Vec<GuestCore<'a>>>> = BTreeMap::new();
    for ((package, die, _), mut core) in by_core {
        if core
            .iter()
            .any(|vcpu| misplaced.contains(&vcpu.placement.id))
        {
            core.sort_by_key(|vcpu| {
                (
                    vcpu.placement.guest.map(|guest| guest.thread),
                    vcpu.placement.id,
                )
            });
            found
                .entry(package)
                .or_default()
                .entry(die)
                .or_default()
                .push(core);
        }
    }
    found
}

/// The open cores of the unit (node or cache) that has enough of them: the unit with the
/// most of these vCPUs at present, or else the lowest.
fn best<'u>(
    host: &HostTopology,
    units: impl Iterator<Item = (u32, &'u CpuSet)>,
    open: &BTreeSet<u32>,
    guest_cores: &[&GuestCore<'_>],
    level: fn(&LocatedVcpu<'_>) -> Option<Location>,
) -> Option<BTreeSet<u32>> {
    let threads = host.threads_per_core().unwrap_or(1);
    let needed: usize = guest_cores
        .iter()
        .map(|core| core.len().div_ceil(threads))
        .sum();
    let present = |unit: u32| {
        let vcpus = guest_cores.iter().copied().flatten();
        let there = |vcpu: &&&LocatedVcpu<'_>| level(vcpu).is_some_and(|one| one.unit == unit);
        vcpus.filter(there).count()
    };
    let enough = units.filter_map(|(unit, cpus)| {
        // A core has the number of its lowest CPU.
        let inside = open.iter().copied().filter(|core| cpus.contains(*core));
        let inside: BTreeSet<u32> = inside.collect();
        (inside.len() >= needed).then(|| (present(unit), Reverse(unit), inside))
    });
    enough
        .max_by_key(|(present, unit, _)| (*present, *unit))
        .map(|(_, _, inside)| inside)
}

/// Takes cores for a guest core out of `open`: its present cores if possible, then the
/// lowest. Returns the target of each vCPU; a vCPU keeps its pCPU if possible.
fn take(
    host: &HostTopology,
    guest_core: &GuestCore<'_>,
    cores: &BTreeSet<u32>,
    open: &mut BTreeSet<u32>,
) -> Option<Vec<(u32, u32)>> {
    let present = guest_core
        .iter()
        .filter_map(|vcpu| vcpu.core)
        .map(|core| core.unit);
    let mut cpus: Vec<u32> = Vec::new();
    for core in present.chain(cores.iter().copied()) {
        if cpus.len() < guest_core.len() && cores.contains(&core) && open.remove(&core) {
            cpus.extend(host.core_cpus(core));
        }
    }
    if cpus.len() < guest_core.len() {
        return None;
    }
    let mut targets = Vec::new();
    let mut moved = Vec::new();
    for vcpu in guest_core {
        let kept = vcpu.only_cpu();
        match cpus.iter().position(|cpu| Some(*cpu) == kept) {
            Some(place) => targets.push((vcpu.placement.id, cpus.remove(place))),
            None => moved.push(vcpu.placement.id),
        }
    }
    targets.extend(moved.into_iter().zip(cpus));
    Some(targets)
}

/// Target pCPUs of the vCPUs of one VM.
pub(super) struct Plan {
    /// The ids of the vCPUs of each guest core that moves.
    guest_cores: Vec<Vec<u32>>,
    /// pCPU by vCPU id.
    targets: BTreeMap<u32, u32>,
}

impl Plan {
    /// The vCPUs that have to be pinned for `vcpus`, with their targets: these vCPUs and
    /// their guest siblings, without those that are already pinned there.
    pub(super) fn moves<'a>(
        &self,
        vm: &LocatedVm<'a>,
        vcpus: &BTreeSet<u32>,
    ) -> Vec<(&'a VcpuPlacement, u32)> {
        let together = self.guest_cores.iter();
        let together = together.filter(|core| core.iter().any(|id| vcpus.contains(id)));
        let ids: BTreeSet<u32> = together.flatten().copied().collect();
        let moves = vm.vcpus.iter().filter_map(|vcpu| {
            let id = vcpu.placement.id;
            let target = *self.targets.get(&id).filter(|_| ids.contains(&id))?;
            (vcpu.only_cpu() != Some(target)).then_some((vcpu.placement, target))
        });
        moves.collect()
    }

    /// Whether the plan ends a mismatch of vCPUs that it moves: a split needs all of them
    /// in one node or cache.
    pub(super) fn cures(&self, host: &HostTopology, found: &Found<'_>) -> bool {
        let level: fn(&HostPlace) -> Option<u32> = match found.kind {
            MismatchKind::NumaSplit => |place| place.node,
            MismatchKind::LlcSplit => |place| place.llc,
            _ => return true,
        };
        let unit = |id| host.place(*self.targets.get(id)?).and_then(level);
        let units: BTreeSet<Option<u32>> = found.vcpus.iter().map(unit).collect();
        units.len() == 1 && !units.contains(&None)
    }
}

//! Conflicts on a pinned vCPU's pCPU: `vcpu_overlap` and `helper_on_vcpu`.

use std::collections::BTreeMap;

use super::text::{list, name_vcpus};
use crate::judge::placement::found::{Cause, Found};
use crate::judge::placement::location::{LocatedHost, LocatedVcpu, LocatedVm};
use crate::judge::placement::types::HelperPlacement;
use crate::vocab::{CpuSet, MismatchKind, Role};

/// A pinned vCPU: its VM's index, and its id.
pub(super) type Pinned = (usize, u32);

/// The pinned vCPUs of the host.
pub(super) struct Pins {
    by_core: BTreeMap<u32, Vec<Pinned>>,
    /// CPU sets with more pinned vCPUs than CPUs, and these vCPUs.
    overcommitted: Vec<(CpuSet, Vec<Pinned>)>,
    /// Indexes into `overcommitted`, by VM.
    by_vm: BTreeMap<usize, Vec<usize>>,
}

impl Pins {
    pub(super) fn of(located: &LocatedHost<'_>) -> Self {
        let mut by_cpu: BTreeMap<u32, Vec<Pinned>> = BTreeMap::new();
        let mut by_core: BTreeMap<u32, Vec<Pinned>> = BTreeMap::new();
        for index in 0..located.vms.len() {
            let vcpus = located.vm(index).vcpus.iter();
            for vcpu in vcpus.filter(|vcpu| vcpu.pinned) {
                let pinned = (index, vcpu.placement.id);
                if let Some(cpu) = vcpu.only_cpu() {
                    by_cpu.entry(cpu).or_default().push(pinned);
                }
                if let Some(core) = vcpu.core {
                    by_core.entry(core.unit).or_default().push(pinned);
                }
            }
        }
        let mut overcommitted: Vec<(CpuSet, Vec<Pinned>)> = by_cpu
            .into_iter()
            .filter(|(_, pinned)| pinned.len() > 1)
            .map(|(cpu, pinned)| (CpuSet::from_iter([cpu]), pinned))
            .collect();
        // A core can be overcommitted although none of its CPUs is, if some vCPUs may use
        // the whole core.
        for (core, pinned) in &by_core {
            let cpus: CpuSet = located.host.core_cpus(*core).iter().copied().collect();
            let is_reported = overcommitted.iter().any(|(one, _)| one.intersects(&cpus));
            if pinned.len() > cpus.len() && !is_reported {
                overcommitted.push((cpus, pinned.clone()));
            }
        }
        let mut by_vm: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, (_, pinned)) in overcommitted.iter().enumerate() {
            for (vm, _) in pinned {
                let places = by_vm.entry(*vm).or_default();
                if places.last() != Some(&index) {
                    places.push(index);
                }
            }
        }
        Self {
            by_core,
            overcommitted,
            by_vm,
        }
    }

    /// The vCPUs that are pinned to a core.
    pub(super) fn on_core(&self, core: u32) -> &[Pinned] {
        self.by_core.get(&core).map_or(&[], Vec::as_slice)
    }

    /// The overlaps that affect a VM.
    pub(super) fn overlaps(&self, located: &LocatedHost<'_>, vm: usize) -> Vec<Found<'static>> {
        let places = self.by_vm.get(&vm).into_iter().flatten();
        places
            .map(|place| {
                let (cpus, pinned) = &self.overcommitted[*place];
                let mut own: Vec<u32> = pinned
                    .iter()
                    .filter(|(other, _)| *other == vm)
                    .map(|(_, id)| *id)
                    .collect();
                own.sort_unstable();
                let others = pinned.iter().filter(|(other, _)| *other != vm);
                let others =
                    others.map(|(other, id)| format!("vCPU {id} of {}", located.vms[*other].name));
                let all = list(std::iter::once(name_vcpus(&own)).chain(others));
                let place = match cpus.len() {
                    1 => format!("one pCPU ({cpus})"),
                    count => format!("the {count} pCPUs of one core ({cpus})"),
                };
                Found {
                    kind: MismatchKind::VcpuOverlap,
                    evidence: format!("{} vCPUs are pinned to {place}: {all}", pinned.len()),
                    vcpus: own,
                    pcpus: cpus.clone(),
                    cause: Cause::Pins,
                }
            })
            .collect()
    }
}

/// Helpers that may run on CPUs to which the VM's own vCPUs are pinned.
pub(super) fn helpers<'a>(located: &LocatedHost<'_>, vm: &LocatedVm<'a>) -> Vec<Found<'a>> {
    let pinned: Vec<&LocatedVcpu<'_>> = vm.vcpus.iter().filter(|vcpu| vcpu.pinned).collect();
    if pinned.is_empty() {
        return Vec::new();
    }
    let mut pinned_cpus = CpuSet::default();
    let masks = pinned.iter().filter_map(|vcpu| vcpu.mask.as_ref());
    masks.for_each(|mask| pinned_cpus.extend(mask.iter()));
    [Role::Vhost, Role::Iothread, Role::Emulator]
        .into_iter()
        .filter_map(|role| helpers_of_role(located, vm, role, &pinned, &pinned_cpus))
        .collect()
}

fn helpers_of_role<'a>(
    located: &LocatedHost<'_>,
    vm: &LocatedVm<'a>,
    role: Role,
    pinned: &[&LocatedVcpu<'_>],
    pinned_cpus: &CpuSet,
) -> Option<Found<'a>> {
    let mut cpus = CpuSet::default();
    let mut conflicting: Vec<&HelperPlacement> = Vec::new();
    let helpers = vm.placement.helpers.iter();
    for helper in helpers.filter(|helper| helper.role == role) {
        let Some(mask) = &helper.affinity else {
            continue;
        };
        if mask.intersects(pinned_cpus) && !located.host.online().is_subset(mask) {
            cpus.extend(mask.intersection(pinned_cpus).iter());
            conflicting.push(helper);
        }
    }
    if conflicting.is_empty() {
        return None;
    }
    let is_affected = |vcpu: &&&LocatedVcpu<'_>| {
        let mask = vcpu.mask.as_ref();
        mask.is_some_and(|mask| mask.intersects(&cpus))
    };
    let mut ids: Vec<u32> = pinned
        .iter()
        .filter(is_affected)
        .map(|vcpu| vcpu.placement.id)
        .collect();
    ids.sort_unstable();
    let names = conflicting.iter().map(|helper| match helper.device {
        Some(device) => format!("{} ({}, {device})", helper.name, helper.tid),
        None => format!("{} ({})", helper.name, helper.tid),
    });
    Some(Found {
        kind: MismatchKind::HelperOnVcpu,
        evidence: format!(
            "{} thread{} {} may run on pCPUs {cpus}, to which {} {} pinned",
            role.name(),
            if conflicting.len() == 1 { "" } else { "s" },
            list(names),
            name_vcpus(&ids),
            if ids.len() == 1 { "is" } else { "are" },
        ),
        vcpus: ids,
        pcpus: cpus,
        cause: Cause::Helpers(conflicting),
    })
}

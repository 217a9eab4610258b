//! Conflicts on a pinned vCPU's pCPU: `vcpu_overlap` and `helper_on_vcpu`.

use std::collections::BTreeMap;

use super::text::{list, vcpus};
use crate::judge::placement::seat::{Seat, Seated, SeatedVm};
use crate::judge::placement::types::HelperPlacement;
use crate::snapshot::Mismatch;
use crate::vocab::{CpuSet, MismatchKind, Role};

/// A pinned vCPU: its VM's index, and its id.
type Pinned = (usize, u32);

/// The pinned vCPUs of the host.
pub(super) struct Pins {
    /// CPU sets with more pinned vCPUs than CPUs, and these vCPUs.
    crowded: Vec<(CpuSet, Vec<Pinned>)>,
    /// Indexes into `crowded`, by VM.
    by_vm: BTreeMap<usize, Vec<usize>>,
}

impl Pins {
    pub(super) fn of(seated: &Seated<'_>) -> Self {
        let mut by_cpu: BTreeMap<u32, Vec<Pinned>> = BTreeMap::new();
        let mut by_core: BTreeMap<u32, Vec<Pinned>> = BTreeMap::new();
        for index in 0..seated.vms.len() {
            let seats = seated.vm(index).seats.iter();
            for seat in seats.filter(|seat| seat.pinned) {
                let pinned = (index, seat.vcpu.id);
                if let Some(cpu) = seat.only_cpu() {
                    by_cpu.entry(cpu).or_default().push(pinned);
                }
                if let Some(core) = seat.core {
                    by_core.entry(core.unit).or_default().push(pinned);
                }
            }
        }
        let mut crowded: Vec<(CpuSet, Vec<Pinned>)> = by_cpu
            .into_iter()
            .filter(|(_, pinned)| pinned.len() > 1)
            .map(|(cpu, pinned)| (CpuSet::from_iter([cpu]), pinned))
            .collect();
        // A core can be overcommitted although none of its CPUs is, if some vCPUs may use
        // the whole core.
        for (core, pinned) in by_core {
            let cpus: CpuSet = seated.host.core_cpus(core).iter().copied().collect();
            let is_told = crowded.iter().any(|(told, _)| told.intersects(&cpus));
            if pinned.len() > cpus.len() && !is_told {
                crowded.push((cpus, pinned));
            }
        }
        let mut by_vm: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, (_, pinned)) in crowded.iter().enumerate() {
            for (vm, _) in pinned {
                let places = by_vm.entry(*vm).or_default();
                if places.last() != Some(&index) {
                    places.push(index);
                }
            }
        }
        Self { crowded, by_vm }
    }

    /// The overlaps that affect a VM.
    pub(super) fn overlaps(&self, seated: &Seated<'_>, vm: usize) -> Vec<Mismatch> {
        let places = self.by_vm.get(&vm).into_iter().flatten();
        places
            .map(|place| {
                let (cpus, pinned) = &self.crowded[*place];
                let mut own: Vec<u32> = pinned
                    .iter()
                    .filter(|(other, _)| *other == vm)
                    .map(|(_, id)| *id)
                    .collect();
                own.sort_unstable();
                let others = pinned.iter().filter(|(other, _)| *other != vm);
                let others =
                    others.map(|(other, id)| format!("vCPU {id} of {}", seated.vms[*other].name));
                let all = list(std::iter::once(vcpus(&own)).chain(others));
                Mismatch {
                    kind: MismatchKind::VcpuOverlap,
                    evidence: format!(
                        "{} vCPUs are pinned to {} ({cpus}): {all}",
                        pinned.len(),
                        if cpus.len() == 1 {
                            "one pCPU"
                        } else {
                            "one core"
                        },
                    ),
                    vcpus: own,
                    pcpus: cpus.clone(),
                    remedy: "pin every vCPU to a pCPU of its own; for VMs of several owners use \
                             the kubelet's static CPU manager policy",
                }
            })
            .collect()
    }
}

/// Helpers that may run on CPUs to which the VM's own vCPUs are pinned.
pub(super) fn helpers(seated: &Seated<'_>, vm: &SeatedVm<'_>) -> Vec<Mismatch> {
    let pinned: Vec<&Seat<'_>> = vm.seats.iter().filter(|seat| seat.pinned).collect();
    if pinned.is_empty() {
        return Vec::new();
    }
    let mut taken = CpuSet::default();
    let masks = pinned.iter().filter_map(|seat| seat.mask.as_ref());
    masks.for_each(|mask| taken.extend(mask.iter()));
    [Role::Vhost, Role::Iothread, Role::Emulator]
        .into_iter()
        .filter_map(|role| intruders(seated, vm, role, &pinned, &taken))
        .collect()
}

fn intruders(
    seated: &Seated<'_>,
    vm: &SeatedVm<'_>,
    role: Role,
    pinned: &[&Seat<'_>],
    taken: &CpuSet,
) -> Option<Mismatch> {
    let mut cpus = CpuSet::default();
    let mut intruders: Vec<&HelperPlacement> = Vec::new();
    let helpers = vm.placement.helpers.iter();
    for helper in helpers.filter(|helper| helper.role == role) {
        let Some(mask) = &helper.affinity else {
            continue;
        };
        if mask.intersects(taken) && !seated.host.online().is_subset(mask) {
            cpus.extend(mask.intersection(taken).iter());
            intruders.push(helper);
        }
    }
    if intruders.is_empty() {
        return None;
    }
    let suffers = |seat: &&&Seat<'_>| {
        let mask = seat.mask.as_ref();
        mask.is_some_and(|mask| mask.intersects(&cpus))
    };
    let mut ids: Vec<u32> = pinned
        .iter()
        .filter(suffers)
        .map(|seat| seat.vcpu.id)
        .collect();
    ids.sort_unstable();
    let names = intruders.iter().map(|helper| match helper.device {
        Some(device) => format!("{} ({}, {device})", helper.name, helper.tid),
        None => format!("{} ({})", helper.name, helper.tid),
    });
    Some(Mismatch {
        kind: MismatchKind::HelperOnVcpu,
        evidence: format!(
            "{} thread{} {} may run on pCPUs {cpus}, to which {} {} pinned",
            role.name(),
            if intruders.len() == 1 { "" } else { "s" },
            list(names),
            vcpus(&ids),
            if ids.len() == 1 { "is" } else { "are" },
        ),
        vcpus: ids,
        pcpus: cpus,
        remedy: "give the VM's other threads CPUs of their own: isolateEmulatorThread in \
                 KubeVirt, emulatorpin and iothreadpin in libvirt",
    })
}

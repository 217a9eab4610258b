//! Whose each thread is, and under which role it counts there.

use rustc_hash::FxHashMap;

use super::Fleet;
use crate::facts::{Facts, Owner, ThreadClass, ThreadFact, VmKey};
use crate::place::Cgroups;
use crate::reading::{Reading, Seat};
use crate::roles;
use crate::snapshot::Role;
use crate::vmm::Identity;

impl Fleet {
    /// Gives each thread, living or ended, to its VM.
    pub(super) fn readings<'a>(
        &self,
        facts: &'a Facts,
        cgroups: &Cgroups<'a>,
    ) -> FxHashMap<VmKey, Reading<'a>> {
        let pods = self.pods();
        let vm_of = |owner: Owner| match owner {
            Owner::Vm(vm) => Some(vm),
            Owner::Pod(pod) => pods.get(&pod).copied(),
        };
        let mut readings: FxHashMap<VmKey, Reading<'a>> = self
            .vms
            .keys()
            .map(|vm| {
                let mut reading = Reading::default();
                reading.placement = facts.placements.get(vm).copied().unwrap_or_default();
                reading.residency_known = facts.residency.is_some();
                reading.throttling = facts.throttling.as_ref();
                reading.memory = facts.memory.get(vm);
                (*vm, reading)
            })
            .collect();
        for run in facts.runs() {
            let Some(vm) = vm_of(run[0].owner) else {
                continue;
            };
            let (Some(member), Some(reading)) = (self.vms.get(&vm), readings.get_mut(&vm)) else {
                continue;
            };
            reading.reserve(run.len(), member.ledger.vcpus.len());
            let mut seat = Seat::default();
            for thread in run {
                if seat.cgroup != Some(thread.cgroup) {
                    seat = Seat::of(thread.cgroup, member, cgroups);
                }
                reading.living(thread, role_of_living(thread, &member.identity), seat);
            }
        }
        for retired in &facts.retired {
            if let Some(vm) = vm_of(retired.class.owner)
                && let (Some(member), Some(reading)) = (self.vms.get(&vm), readings.get_mut(&vm))
            {
                let level = retired.class.cgroup;
                let level = level.and_then(|cgroup| member.level_of(cgroup, cgroups));
                reading.retired(
                    retired,
                    role_of_class(&retired.class, &member.identity),
                    level,
                );
            }
        }
        for ended in &facts.ended_vcpus {
            if let Some(reading) = readings.get_mut(&ended.vm) {
                reading.ended_vcpu(ended);
            }
        }
        for hit in facts.throttling.iter().flat_map(|seen| &seen.hits) {
            if let Some(vm) = vm_of(hit.class.owner)
                && let (Some(member), Some(reading)) = (self.vms.get(&vm), readings.get_mut(&vm))
            {
                reading.hit(hit, role_of_class(&hit.class, &member.identity));
            }
        }
        for fact in facts.residency.iter().flatten() {
            if let Some(reading) = readings.get_mut(&fact.vm) {
                reading.residency(fact);
            }
        }
        for vm in &facts.vms {
            if let Some(reading) = readings.get_mut(&vm.vm) {
                reading.online_vcpus = Some(vm.vcpus);
            }
        }
        readings
    }
}

/// The role under which a living thread counts.
fn role_of_living(thread: &ThreadFact, identity: &Identity) -> Option<Role> {
    roles::role_of(&roles::Traits {
        kind: thread.kind,
        is_vcpu: thread.vcpu.is_some(),
        in_vmm: matches!(thread.owner, Owner::Vm(_)),
        vmm: identity.vmm,
        comm: thread.comm,
        process_comm: thread.process_comm,
    })
}

/// The role under which threads that count alike do; none where their names were too
/// many to keep.
fn role_of_class(class: &ThreadClass, identity: &Identity) -> Option<Role> {
    let nameless = class.comm.as_bytes().is_empty() && class.process_comm.as_bytes().is_empty();
    if nameless && class.vcpu_id.is_none() {
        return None;
    }
    roles::role_of(&roles::Traits {
        kind: class.kind,
        is_vcpu: class.vcpu_id.is_some(),
        in_vmm: matches!(class.owner, Owner::Vm(_)),
        vmm: identity.vmm,
        comm: class.comm,
        process_comm: class.process_comm,
    })
}

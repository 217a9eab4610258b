//! Memory of VMs: held, released and reused.
//!
//! ```text
//! memslots ──► RAM ranges ─────► (kernel) discards by kind ──┐
//! resident memory, page faults, cgroups ─────────────────────┴─► Memory
//! ```

use crate::facts::{CgroupMemory, MemoryFact};
use crate::fleet::member::Member;
use crate::identify::place::Cgroups;
use crate::snapshot::{Memory, Vcpu};

/// Reads a VM's memory. After the VM has ended the counters keep their values.
pub(super) fn read(
    member: &mut Member,
    fact: Option<&MemoryFact>,
    cgroups: &Cgroups<'_>,
    vcpus: &[Vcpu],
) -> Memory {
    let fact = fact.copied().unwrap_or_default();
    let resident = fact
        .resident_bytes
        .map(|bytes| bytes.saturating_add(fact.huge_bytes));
    let meter = &mut member.ledger.memory;
    let peak = resident.max(fact.peak_bytes);
    let peak = peak.map(|bytes| meter.peak_bytes(bytes));
    if let Some(discards) = &fact.discards {
        meter.read(discards);
    }
    if let Some(bytes) = fact.refault_bytes {
        meter.read_refault(bytes);
    }
    let discards = meter.discards();
    let dirty_logging = meter.dirty_logging();
    let refault = discards.map(|_| meter.refault_bytes());
    let (events, reports) = discards.map_or((0, 0), |one| {
        let balloon = one.inflate.events.saturating_add(one.deflate.events);
        (balloon, one.report.events)
    });
    let cgroup = cgroup_of(member, cgroups);
    Memory {
        guest_bytes: fact.guest_bytes,
        resident_bytes: resident,
        resident_huge_bytes: resident.map(|_| fact.huge_bytes),
        guest_memfd_bytes: fact.guest_memfd_bytes,
        swap_bytes: fact.swap_bytes,
        resident_peak_bytes: peak,
        cgroup_bytes: cgroup.map(|memory| memory.usage_bytes),
        cgroup_limit_bytes: cgroup.and_then(|memory| memory.limit_bytes),
        cgroup_events: member.ledger.outermost.memory_events(),
        faults: vcpus
            .iter()
            .filter_map(|vcpu| vcpu.kvm.pf_fixed())
            .reduce(u64::saturating_add),
        discards,
        refault_bytes: refault,
        dirty_logging,
        features: member.features.seen(member.identity.vmm, events, reports),
    }
}

/// The level of the VM's path with the lowest limit, or without limits the outermost
/// level: the pod's.
fn cgroup_of(member: &Member, cgroups: &Cgroups<'_>) -> Option<CgroupMemory> {
    if member.ended_ns.is_some() {
        return None;
    }
    let levels = &member.place.as_ref()?.levels;
    levels
        .iter()
        .filter_map(|(id, _)| cgroups.get(id)?.memory)
        .reduce(|tightest, level| {
            let limit = |memory: CgroupMemory| memory.limit_bytes.unwrap_or(u64::MAX);
            if limit(level) < limit(tightest) {
                level
            } else {
                tightest
            }
        })
}

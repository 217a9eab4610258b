//! The families on the placement of VMs on the host's CPUs.

use std::collections::BTreeMap;

use virtlens_model::snapshot::{Pairs, Topology};
use virtlens_model::vocab::MismatchKind;

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::known;

pub(crate) const PLACEMENT_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_guest_topology_info",
        kind: Kind::Info,
        profile: Some(Profile::Full),
        unit: None,
        help: "Topology that CPUID reports to the guest: packages, cores per package, threads \
               per core, for its present vCPUs.",
        own_labels: &["packages", "cores", "threads"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.topology.as_ref().and_then(|one| one.guest), |guest| {
                rows.info(&[
                    guest.packages.into(),
                    guest.cores.into(),
                    guest.threads.into(),
                ])
            })
        }),
    },
    Family {
        name: "virtlens_vcpus_pinned",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "vCPUs whose affinity allows one pCPU, or the pCPUs of one core, only.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.topology.as_ref(), |one| {
                rows.count(&[], one.pinned_vcpus.into())
            })
        }),
    },
    Family {
        name: "virtlens_vcpu_migrations_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Migrations of the VM's vCPUs between pCPUs by distance: smt (threads of one \
               core), core (cores of one last-level cache), llc (caches of one NUMA node), \
               numa.",
        own_labels: &["distance"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.moves, |moves| {
                moves
                    .by_name()
                    .try_for_each(|(distance, count)| rows.count(&[distance.into()], count))
            })
        }),
    },
    Family {
        name: "virtlens_topology_pairs",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Pairs of vCPUs by state: guest siblings on one host core (aligned) or on \
               several (split), vCPUs of different guest cores on one host core (shared). \
               Absent while there are none.",
        own_labels: &["state"],
        rows: Rows::Vm(|vm, rows| {
            let pairs = vm.topology.as_ref().and_then(|one| one.pairs);
            known(pairs.filter(|pairs| *pairs != Pairs::default()), |pairs| {
                rows.count(&["aligned".into()], pairs.aligned.into())?;
                rows.count(&["split".into()], pairs.split.into())?;
                rows.count(&["shared".into()], pairs.shared.into())
            })
        }),
    },
    Family {
        name: "virtlens_misplaced_vcpus",
        kind: Kind::Gauge,
        profile: Some(Profile::Default),
        unit: None,
        help: "vCPUs whose placement does not match the guest topology, by kind of mismatch; \
               absent without a mismatch.",
        own_labels: &["kind"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.topology.as_ref(), |one| {
                vcpus_by_kind(one)
                    .into_iter()
                    .try_for_each(|(kind, vcpus)| rows.count(&[kind.name().into()], vcpus))
            })
        }),
    },
    Family {
        name: "virtlens_misplaced_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "CPU time of vCPUs while a mismatch of the kind affected them; one vCPU can \
               count under several kinds. Absent until the first occurrence.",
        own_labels: &["kind"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.topology.as_ref(), |one| {
                one.misplaced_ns
                    .known()
                    .filter(|(_, ns)| *ns > 0)
                    .try_for_each(|(kind, ns)| rows.seconds(&[kind.name().into()], ns))
            })
        }),
    },
    Family {
        name: "virtlens_vcpu_pcpu_seconds_total",
        kind: Kind::Counter,
        profile: None,
        unit: Some("seconds"),
        help: "CPU time of the vCPU on each pCPU since it was first seen: up to vCPUs times pCPUs \
               series for a VM.",
        own_labels: &["vcpu", "cpu"],
        rows: Rows::Vm(|vm, rows| {
            vm.vcpus.iter().try_for_each(|vcpu| {
                vcpu.residency_ns
                    .iter()
                    .try_for_each(|(pcpu, ns)| rows.seconds(&[vcpu.id.into(), (*pcpu).into()], *ns))
            })
        }),
    },
];

/// Number of affected vCPUs by kind of mismatch. A vCPU in two findings of a kind counts
/// once.
fn vcpus_by_kind(topology: &Topology) -> BTreeMap<MismatchKind, u64> {
    let mut vcpus: BTreeMap<MismatchKind, Vec<u32>> = BTreeMap::new();
    for found in &topology.mismatches {
        let mismatch = &found.mismatch;
        let of_kind = vcpus.entry(mismatch.kind).or_default();
        of_kind.extend(&mismatch.vcpus);
    }
    vcpus
        .into_iter()
        .map(|(kind, mut ids)| {
            ids.sort_unstable();
            ids.dedup();
            (kind, ids.len() as u64)
        })
        .collect()
}

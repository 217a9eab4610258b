//! The families with KVM's counters of VMs.

use std::fmt;

use virtlens_model::vocab::HaltBuckets;

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::{Samples, known};

pub(crate) const KVM_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_kvm_exits_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "VM exits of all vCPUs by kind, as KVM counts them.",
        own_labels: &["kind"],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.exits(), |exits| {
                exits
                    .by_kind()
                    .try_for_each(|(kind, count)| rows.count(&[kind.into()], count))
            })
        }),
    },
    Family {
        name: "virtlens_halt_poll_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Host CPU time that idle vCPUs spent polling for a wake-up that came (success) \
               or did not come (fail); part of the role vcpu.",
        own_labels: &["result"],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.halt_poll_ns(), |poll| {
                rows.seconds(&["success".into()], poll.success)?;
                rows.seconds(&["fail".into()], poll.fail)
            })
        }),
    },
    Family {
        name: "virtlens_halt_wait_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Time that idle vCPUs slept after polling, until a wake-up.",
        own_labels: &[],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.halt_wait_ns(), |ns| rows.seconds(&[], ns))
        }),
    },
    Family {
        name: "virtlens_halt_wakeups_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Halts of vCPUs that a wake-up ended.",
        own_labels: &[],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.halt_wakeups(), |count| {
                rows.count(&[], count)
            })
        }),
    },
    Family {
        name: "virtlens_halt_polls_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Polls at the start of halts: all (attempted), those that a wake-up ended \
               (successful); and halts that ended without an event for the vCPU (invalid).",
        own_labels: &["kind"],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.halt_polls(), |polls| {
                rows.count(&["attempted".into()], polls.attempted)?;
                rows.count(&["successful".into()], polls.successful)?;
                rows.count(&["invalid".into()], polls.invalid)
            })
        }),
    },
    Family {
        name: "virtlens_halt_duration_seconds",
        kind: Kind::Histogram,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Durations of halts of vCPUs: of polls by result (poll_success, poll_fail) and of \
               sleeps (wait).",
        own_labels: &["kind"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.halts.as_deref(), |halts| {
                known(rows.vcpus().kvm.halt_poll_ns(), |poll| {
                    histogram(rows, "poll_success", poll.success, &halts.poll_success)?;
                    histogram(rows, "poll_fail", poll.fail, &halts.poll_fail)
                })?;
                known(rows.vcpus().kvm.halt_wait_ns(), |ns| {
                    histogram(rows, "wait", ns, &halts.wait)
                })
            })
        }),
    },
    Family {
        name: "virtlens_directed_yields_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "How often a vCPU that waited for another one gave it its CPU: all (attempted), \
               and those after which the other one ran (successful). Absent until the first.",
        own_labels: &["kind"],
        rows: Rows::Vm(|_, rows| {
            let yields = rows.vcpus().kvm.yields();
            known(yields.filter(|yields| yields.attempted > 0), |yields| {
                rows.count(&["attempted".into()], yields.attempted)?;
                rows.count(&["successful".into()], yields.successful)
            })
        }),
    },
    Family {
        name: "virtlens_preemptions_reported_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "How often KVM reported to the guest that a vCPU is preempted; 0 if the guest \
               does not use KVM's steal time.",
        own_labels: &[],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().kvm.preemptions_reported(), |count| {
                rows.count(&[], count)
            })
        }),
    },
    Family {
        name: "virtlens_mapped_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Guest memory that KVM's page tables map, by size of the page (4k, 2m, 1g); with \
               page tables of nested guests.",
        own_labels: &["page_size"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.mmu.and_then(|mmu| mmu.mapped_bytes), |mapped| {
                // Few hosts have pages of 1 GiB, so the others get no series for them.
                let sizes = mapped.by_size().into_iter();
                let mut sizes = sizes.filter(|(size, bytes)| *size != "1g" || *bytes > 0);
                sizes.try_for_each(|(size, bytes)| rows.count(&[size.into()], bytes))
            })
        }),
    },
    Family {
        name: "virtlens_nx_huge_page_splits",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Huge pages of the guest that are split because it executes code in them and the \
               CPU has the bug iTLB multihit; absent while there are none.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let splits = vm.mmu.map(|mmu| mmu.nx_splits);
            known(splits.filter(|count| *count > 0), |count| {
                rows.count(&[], count)
            })
        }),
    },
    Family {
        name: "virtlens_tlb_flushes_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "How often KVM interrupted running vCPUs to flush the TLBs of all vCPUs of the VM.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.mmu, |mmu| rows.count(&[], mmu.tlb_flushes))),
    },
];

/// Exponents of the exported upper bounds: 2^10 ns is about 1 µs, 2^30 ns about 1 s. KVM's
/// buckets in between are merged: three times as many series would add little.
const BOUND_EXPONENTS: [usize; 8] = [10, 13, 16, 18, 20, 22, 25, 28];

/// Encodes a histogram of KVM with `sum_ns`, KVM's sum of the same times.
fn histogram(rows: &mut Samples, kind: &str, sum_ns: u64, counts: &HaltBuckets) -> fmt::Result {
    let bounds_ns = BOUND_EXPONENTS.map(|exponent| 1u64 << exponent);
    rows.histogram(&[kind.into()], sum_ns, &bounds_ns, &merged(counts))
}

/// Merges KVM's buckets, of which bucket i ends at 2^i ns, up to each bound.
fn merged(counts: &HaltBuckets) -> [u64; BOUND_EXPONENTS.len() + 1] {
    let mut merged = [0u64; BOUND_EXPONENTS.len() + 1];
    for (bucket, count) in counts.iter().enumerate() {
        let at = BOUND_EXPONENTS.partition_point(|exponent| *exponent < bucket);
        if let Some(sum) = merged.get_mut(at) {
            *sum = sum.saturating_add(*count);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{BOUND_EXPONENTS, merged};

    #[test]
    fn buckets_are_merged_up_to_their_bounds() {
        assert_eq!(merged(&[1; 32]), [11, 3, 3, 2, 2, 2, 3, 3, 3]);
        for (at, exponent) in BOUND_EXPONENTS.into_iter().enumerate() {
            let mut counts = [0; 32];
            (counts[exponent], counts[exponent + 1]) = (5, 7);
            assert_eq!(merged(&counts)[at..][..2], [5, 7], "2^{exponent} ns");
        }
    }
}

//! The families on VMs' memory.

use std::fmt;

use virtlens_model::snapshot::Memory;
use virtlens_model::vocab::{Discard, DiscardSum};

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::{Samples, known};

pub(crate) const MEMORY_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_balloon_bytes_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Guest memory that the balloon took (inflate) and returned (deflate), and memory \
               discarded for other reasons (other: unplug, migration, reset).",
        own_labels: &["operation"],
        rows: Rows::Vm(|vm, rows| balloon(&vm.memory, rows, |sum| sum.bytes)),
    },
    Family {
        name: "virtlens_balloon_events_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "System calls of the VMM behind virtlens_balloon_bytes_total; mostly one per page.",
        own_labels: &["operation"],
        rows: Rows::Vm(|vm, rows| balloon(&vm.memory, rows, |sum| sum.events)),
    },
    Family {
        name: "virtlens_free_page_reported_bytes_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("bytes"),
        help: "Memory that the guest reported as free and the VMM released to the host.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(reports(&vm.memory), |report| rows.count(&[], report.bytes))
        }),
    },
    Family {
        name: "virtlens_free_page_reports_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Ranges that the guest reported as free and the VMM released to the host.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(reports(&vm.memory), |report| rows.count(&[], report.events))
        }),
    },
    Family {
        name: "virtlens_memory_release_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Time that the VMM spent on releasing guest memory to the host: in the kernel \
               and between single pages. One in 64 single pages is timed and counts for 64. \
               Memory that is unplugged from a guest with neither reports nor huge pages is \
               not timed.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let discards = vm.memory.discards.filter(|one| {
                has_balloon(&vm.memory) || has_reports(&vm.memory) || one.events() > 0
            });
            known(discards, |one| rows.seconds(&[], one.release_ns()))
        }),
    },
    Family {
        name: "virtlens_memory_refault_bytes_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("bytes"),
        help: "Memory that the guest reported as free and faulted in again: growth of its \
               resident RAM up to the released amount.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let refault = vm.memory.refault_bytes;
            let refault = refault.filter(|_| reports(&vm.memory).is_some());
            known(refault, |bytes| rows.count(&[], bytes))
        }),
    },
    Family {
        name: "virtlens_memory_faults_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Page faults of the guest that KVM fixed: first and repeated accesses to memory.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.memory.faults, |faults| rows.count(&[], faults))),
    },
    Family {
        name: "virtlens_memory_guest_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Default),
        unit: Some("bytes"),
        help: "Memory of the guest, device memory (video) included.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.memory.guest_bytes, |bytes| rows.count(&[], bytes))),
    },
    Family {
        name: "virtlens_memory_resident_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("bytes"),
        help: "Resident memory of the VMM's process, guest RAM and huge pages included.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.memory.resident_bytes, |bytes| rows.count(&[], bytes))),
    },
    Family {
        name: "virtlens_memory_resident_huge_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("bytes"),
        help: "Huge pages of hugetlbfs in virtlens_memory_resident_bytes, which a cgroup's \
               memory limit does not count; only for VMs with huge pages.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let huge = vm.memory.resident_huge_bytes.filter(|bytes| *bytes > 0);
            known(huge, |bytes| rows.count(&[], bytes))
        }),
    },
    Family {
        name: "virtlens_memory_guest_memfd_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Memory of the guest in guest_memfd files, which is the memory of a confidential \
               VM. virtlens_memory_resident_bytes includes only the pages of it that the VMM \
               has mapped; the memory use of the cgroup includes all. Absent for a VM without \
               such files.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.guest_memfd_bytes, |bytes| rows.count(&[], bytes))
        }),
    },
    Family {
        name: "virtlens_memory_swap_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Private memory of the VMM's process in swap. Guest RAM in shared memory (memfd, \
               as for virtiofs) is not part of it, because the kernel does not count that by \
               process. Absent while there is none.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let swap = vm.memory.swap_bytes.filter(|bytes| *bytes > 0);
            known(swap, |bytes| rows.count(&[], bytes))
        }),
    },
    Family {
        name: "virtlens_memory_resident_peak_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Highest virtlens_memory_resident_bytes since the VMM started.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.resident_peak_bytes, |bytes| {
                rows.count(&[], bytes)
            })
        }),
    },
    Family {
        name: "virtlens_memory_cgroup_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("bytes"),
        help: "Memory use of the cgroup of virtlens_memory_cgroup_limit_bytes; without a \
               limit, of the pod's cgroup. cgroup v2 only.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.memory.cgroup_bytes, |bytes| rows.count(&[], bytes))),
    },
    Family {
        name: "virtlens_memory_cgroup_limit_bytes",
        kind: Kind::Gauge,
        profile: Some(Profile::Minimal),
        unit: Some("bytes"),
        help: "Lowest memory limit on the VM's cgroup path, from the pod's cgroup down; absent \
               without a limit.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.cgroup_limit_bytes, |bytes| rows.count(&[], bytes))
        }),
    },
    Family {
        name: "virtlens_memory_oom_kills_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Processes of the pod's cgroup (without a pod: of the machine's) and of those below \
               it that the kernel killed for lack of memory. cgroup v2 only.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.cgroup_events, |events| {
                rows.count(&[], events.oom_kill)
            })
        }),
    },
    Family {
        name: "virtlens_memory_events_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "Memory events of the pod's cgroup (without a pod: of the machine's) and those \
               below it: usage over memory.high (high), usage at memory.max (max), allocation \
               impossible within memory.max (oom), process killed for lack of memory \
               (oom_kill, as in virtlens_memory_oom_kills_total). cgroup v2 only.",
        own_labels: &["event"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.cgroup_events, |events| {
                let mut events = events.by_name().into_iter();
                events.try_for_each(|(event, count)| rows.count(&[event.into()], count))
            })
        }),
    },
    Family {
        name: "virtlens_memory_dirty_logging_enabled",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Whether KVM logs which pages the guest writes, for at least half of its RAM, as \
               during a live migration (1) or not (0); absent if unknown.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.memory.dirty_logging, |logging| {
                rows.count(&[], u64::from(logging.enabled))
            })
        }),
    },
    Family {
        name: "virtlens_memory_dirty_logging_age_seconds",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Time since the first reading of this agent in which KVM logged the writes of the \
               guest; absent while it does not.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let seen_ns = vm.memory.dirty_logging.and_then(|logging| logging.seen_ns);
            known(seen_ns, |ns| rows.seconds(&[], ns))
        }),
    },
    Family {
        name: "virtlens_memory_feature_enabled",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Whether the VM has a balloon and free page reporting; absent if unknown.",
        own_labels: &["feature"],
        rows: Rows::Vm(|vm, rows| {
            let features = vm.memory.features.by_name();
            features.into_iter().try_for_each(|(name, feature)| {
                known(feature.enabled, |on| {
                    rows.count(&[name.into()], u64::from(on))
                })
            })
        }),
    },
];

/// Balloon activity; no series for a VM that has no balloon and never used one.
fn balloon(memory: &Memory, rows: &mut Samples, of: fn(&DiscardSum) -> u64) -> fmt::Result {
    known(memory.discards, |discards| {
        let shown = |discard, sum: &DiscardSum| {
            sum.events > 0 || discard != Discard::Other && has_balloon(memory)
        };
        discards
            .balloon()
            .into_iter()
            .filter(|(discard, sum)| shown(*discard, sum))
            .try_for_each(|(discard, sum)| rows.count(&[discard.name().into()], of(&sum)))
    })
}

/// Free page reports of the guest; `None` if the guest is known not to report and never
/// did.
fn reports(memory: &Memory) -> Option<DiscardSum> {
    let report = memory.discards?.report;
    (report.events > 0 || has_reports(memory)).then_some(report)
}

fn has_balloon(memory: &Memory) -> bool {
    !memory.features.balloon.is_absent()
}

fn has_reports(memory: &Memory) -> bool {
    !memory.features.free_page_reporting.is_absent()
}

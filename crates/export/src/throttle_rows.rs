//! The families on throttling beyond the kernel's counters: who used the quota, and for
//! how long the pod was throttled.

use virtlens_model::vocab::BOUNDS_MS;

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::samples::known;

pub(crate) const THROTTLE_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_cfs_quota_used_seconds_total",
        kind: Kind::Counter,
        unit: Some("seconds"),
        help: "Host CPU time by role of the threads that share the limit that \
               virtlens_cfs_quota_cores shows; which roles they are depends on the runtime.",
        own_labels: &["scope", "role"],
        rows: Rows::Vm(|vm, rows| {
            vm.limits.iter().try_for_each(|quota| {
                quota.used_ns.iter().try_for_each(|(role, ns)| {
                    rows.seconds(&[quota.scope.name().into(), role.name().into()], *ns)
                })
            })
        }),
    },
    Family {
        name: "virtlens_throttled_wall_seconds_total",
        kind: Kind::Counter,
        unit: Some("seconds"),
        help: "Time in which the limit that virtlens_cfs_quota_cores shows held up threads on at \
               least one CPU; it never exceeds the time that went by, and counts when the \
               throttling ends.",
        own_labels: &["scope"],
        rows: Rows::Vm(|vm, rows| {
            vm.limits.iter().try_for_each(|quota| {
                known(quota.throttle, |seen| {
                    rows.seconds(&[quota.scope.name().into()], seen.wall_ns)
                })
            })
        }),
    },
    Family {
        name: "virtlens_throttle_duration_seconds",
        kind: Kind::Histogram,
        unit: Some("seconds"),
        help: "How long the run queue of one CPU was throttled, in all cgroups of the VM, those \
               that are gone included; only of VMs that were throttled.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.throttle_durations, |durations| {
                let bounds_ns = BOUNDS_MS.map(|ms| ms * 1_000_000);
                rows.histogram(&[], durations.sum_ns, &bounds_ns, &durations.counts)
            })
        }),
    },
    Family {
        name: "virtlens_throttle_hits_total",
        kind: Kind::Counter,
        unit: None,
        help: "How often a thread of the role ran when a quota of the VM ran out on its CPU; only \
               of VMs that were throttled.",
        own_labels: &["role"],
        rows: Rows::Vm(|vm, rows| {
            known(vm.throttle_durations, |_| {
                vm.roles.iter().try_for_each(|role| {
                    known(role.throttle_hits, |hits| {
                        rows.count(&[role.role.name().into()], hits)
                    })
                })
            })
        }),
    },
];

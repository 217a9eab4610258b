//! The families on throttling beyond the kernel's counters: who used the quota, and for
//! how long the pod was throttled.

use virtlens_model::vocab::BOUNDS_MS;

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::known;

pub(crate) const THROTTLE_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_cfs_quota_used_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Host CPU time by role of the threads under the limit of \
               virtlens_cfs_quota_cores; the roles under a limit depend on the runtime. Without \
               the time of real-time and deadline threads, which have no limit.",
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
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Wall time in which the limit of virtlens_cfs_quota_cores throttled threads on \
               at least one CPU. It counts when a throttling ends.",
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
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Throttling durations of per-CPU run queues in all cgroups of the VM, removed \
               cgroups included; only for VMs that were throttled.",
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
        profile: Some(Profile::Full),
        unit: None,
        help: "How often a thread of the role was running on a CPU when a quota of the VM ran \
               out there; only for VMs that were throttled.",
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

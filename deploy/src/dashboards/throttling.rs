//! CPU limits: throttled VMs, their throttled time, and the consumers of the quota.

use crate::dashboard::Unit::{Cores, Count, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const THROTTLING: Dashboard = Dashboard {
    name: "throttling",
    title: "Throttling",
    description: "CPU limits: throttled VMs, throttled time, and usage by role.",
    of: Of::Node,
    rows: &[
        Row {
            title: "Limits",
            is_open: true,
            panels: &[
                Panel::table(
                    "Limits by throttled time",
                    Share,
                    "Each CPU limit over the last 5 minutes: throttled time, usage and size.",
                    &[
                        column("max by (@vm, scope) (vm_scope:virtlens_throttled:ratio_rate5m{@sel})", "Throttled", Share),
                        column("max by (@vm, scope) (vm_scope:virtlens_quota_used:ratio_rate5m{@sel})", "Used", Share),
                        column("max by (@vm, scope) (virtlens_cfs_quota_cores{@sel})", "Limit", Cores),
                        column(
                            "sum by (@vm, scope) (vm_scope_role:virtlens_quota_used:share_rate5m{@sel, role!=\"vcpu\"})",
                            "Other than vCPUs",
                            Share,
                        ),
                    ],
                ),
                Panel::table(
                    "Limit usage by role",
                    Share,
                    "Share of each role in the usage of each limit, over the last 5 minutes.",
                    &[target(
                        "max by (@vm, scope, role) (vm_scope_role:virtlens_quota_used:share_rate5m{@sel})",
                        "Share",
                    )],
                ),
            ],
        },
        Row {
            title: "Wall time and kernel counters",
            is_open: true,
            panels: &[
                Panel::lines(
                    "Throttled wall time",
                    Share,
                    "Share of time in which a limit throttled threads on at least one CPU.",
                    &[target(
                        "topk(10, max by (@namespace, @pod, vm, scope) (rate(virtlens_throttled_wall_seconds_total{@sel}[$__rate_interval])))",
                        "{{@namespace}}/{{@pod}} {{vm}} {{scope}}",
                    )],
                )
                .limit(0.25),
                Panel::lines(
                    "Throttled periods",
                    Share,
                    "Share of the periods with runnable threads in which the limit throttled them. Common alerts use this value; it does not include durations.",
                    &[target(
                        "topk(10, max by (@namespace, @pod, vm, scope) (\n  \
                           rate(virtlens_cfs_throttled_periods_total{@sel}[$__rate_interval])\n  \
                           / (rate(virtlens_cfs_periods_total{@sel}[$__rate_interval]) > 0)\n\
                         ))",
                        "{{@namespace}}/{{@pod}} {{vm}} {{scope}}",
                    )],
                ),
                Panel::lines(
                    "Throttled, summed over CPUs",
                    Cores,
                    "The kernel's throttled time, summed over CPUs, so it can exceed wall time.",
                    &[target(
                        "topk(10, sum by (@namespace, @pod, vm, scope) (rate(virtlens_cfs_throttled_seconds_total{@sel}[$__rate_interval])))",
                        "{{@namespace}}/{{@pod}} {{vm}} {{scope}}",
                    )],
                ),
                Panel::lines(
                    "Throttling duration",
                    Seconds,
                    "Time until a throttled run queue of one CPU is unthrottled: median and 99th percentile.",
                    &[
                        target(
                            "histogram_quantile(0.5, sum by (le) (rate(virtlens_throttle_duration_seconds_bucket{@sel}[$__rate_interval])))",
                            "median",
                        ),
                        target(
                            "histogram_quantile(0.99, sum by (le) (rate(virtlens_throttle_duration_seconds_bucket{@sel}[$__rate_interval])))",
                            "99 %",
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Effects",
            is_open: true,
            panels: &[
                Panel::lines(
                    "Waiting threads",
                    Cores,
                    "Runnable threads that did not run, by role, over 5 minutes: waiting for a CPU, or throttled.",
                    &[target(
                        "sum by (role) (vm_role:virtlens_cpu_wait_seconds:rate5m{@sel})",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "Threads outside their pod",
                    Count,
                    "Threads by role in cgroups where the pod's limits do not apply.",
                    &[target(
                        "sum by (role) (virtlens_threads_outside_pod{@sel})",
                        "{{role}}",
                    )],
                ),
            ],
        },
    ],
};

//! CPU limits: throttled VMs, their throttled time, and the consumers of the quota.

use crate::dashboard::Unit::{Cores, Count, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const THROTTLING: Dashboard = Dashboard {
    name: "throttling",
    title: "Throttling",
    description: "CPU limits: which VMs stand still by them, for how long, and who ate them.",
    of: Of::Vms,
    rows: &[
        Row {
            title: "Limits",
            panels: &[
                Panel::table(
                    "Limits, the most throttled first",
                    Share,
                    "Each CPU limit over the last 5 minutes: for how long it held up threads, how much of it was used, and how large it is.",
                    &[
                        column("max by (@vm, scope) (vm_scope:virtlens_throttled:ratio_rate5m{@sel})", "Throttled", Share),
                        column("max by (@vm, scope) (vm_scope:virtlens_quota_used:ratio_rate5m{@sel})", "Used", Share),
                        column("max by (@vm, scope) (virtlens_cfs_quota_cores{@sel})", "Limit", Cores),
                        column(
                            "sum by (@vm, scope) (vm_scope_role:virtlens_quota_used:share_rate5m{@sel, role!=\"vcpu\"})",
                            "Not by vCPUs",
                            Share,
                        ),
                    ],
                ),
                Panel::table(
                    "Who ate the limit",
                    Share,
                    "The share of what was used of each limit, by role, over the last 5 minutes.",
                    &[target(
                        "max by (@vm, scope, role) (vm_scope_role:virtlens_quota_used:share_rate5m{@sel})",
                        "Share",
                    )],
                ),
            ],
        },
        Row {
            title: "By the clock, and by the kernel's counters",
            panels: &[
                Panel::lines(
                    "Stood still, by the clock",
                    Share,
                    "Share of the time in which a limit held up threads on at least one CPU.",
                    &[target(
                        "topk(10, max by (namespace, pod, vm, scope) (rate(virtlens_throttled_wall_seconds_total{@sel}[$__rate_interval])))",
                        "{{namespace}}/{{pod}} {{vm}} {{scope}}",
                    )],
                )
                .limit(0.25),
                Panel::lines(
                    "Throttled periods",
                    Share,
                    "Share of the periods with work in which the limit was used up: what other alerts look at; it says nothing of how long.",
                    &[target(
                        "topk(10, max by (namespace, pod, vm, scope) (\n  \
                           rate(virtlens_cfs_throttled_periods_total{@sel}[$__rate_interval])\n  \
                           / (rate(virtlens_cfs_periods_total{@sel}[$__rate_interval]) > 0)\n\
                         ))",
                        "{{namespace}}/{{pod}} {{vm}} {{scope}}",
                    )],
                ),
                Panel::lines(
                    "Throttled, summed over CPUs",
                    Cores,
                    "The kernel's own time throttled, which counts each CPU and so can exceed the clock.",
                    &[target(
                        "topk(10, sum by (namespace, pod, vm, scope) (rate(virtlens_cfs_throttled_seconds_total{@sel}[$__rate_interval])))",
                        "{{namespace}}/{{pod}} {{vm}} {{scope}}",
                    )],
                ),
                Panel::lines(
                    "One throttling lasts",
                    Seconds,
                    "How long the run queue of one CPU stands before it is set free: half of them less, 99 % less.",
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
            title: "Who suffers",
            panels: &[
                Panel::lines(
                    "Threads that wait",
                    Cores,
                    "Threads by role that could run but did not, over 5 minutes; throttled ones and those that wait for a CPU.",
                    &[target(
                        "sum by (role) (vm_role:virtlens_cpu_wait_seconds:rate5m{@sel})",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "Threads outside of their pod",
                    Count,
                    "Threads by role that sit where the pod's limit does not hold.",
                    &[target(
                        "sum by (role) (virtlens_threads_outside_pod{@sel})",
                        "{{role}}",
                    )],
                ),
            ],
        },
    ],
};

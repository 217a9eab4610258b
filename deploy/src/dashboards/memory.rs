//! Memory that guests return and use again.

use super::REPORTED_AND_TAKEN_AGAIN;
use crate::dashboard::Unit::{Bytes, BytesPerSecond, Count, PerSecond, SecondsPerGib, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const MEMORY: Dashboard = Dashboard {
    name: "memory",
    title: "Memory",
    description: "What VMs hold of the host's memory, give back and take again.",
    of: Of::Vms,
    rows: &[
        Row {
            title: "Held",
            panels: &[
                Panel::stacked(
                    "Resident by VM",
                    Bytes,
                    "Memory of the host that the ten largest VMs hold.",
                    &[target(
                        "topk(10, sum by (namespace, pod, vm) (virtlens_memory_resident_bytes{@sel}))",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "All VMs",
                    Bytes,
                    "What guests were given, what is resident of it, and the highest that ever was.",
                    &[
                        target("sum(virtlens_memory_guest_bytes{@sel})", "given"),
                        target("sum(virtlens_memory_resident_bytes{@sel})", "resident"),
                        target("sum(virtlens_memory_resident_peak_bytes{@sel})", "peak"),
                    ],
                ),
                Panel::table(
                    "VMs",
                    Bytes,
                    "Memory of each VM, its limit, and whether it can give memory back.",
                    &[
                        column(
                            "max by (@vm) (virtlens_memory_resident_bytes{@sel})",
                            "Resident",
                            Bytes,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_guest_bytes{@sel})",
                            "Given",
                            Bytes,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_resident_bytes{@sel}) / max by (@vm) (virtlens_memory_cgroup_limit_bytes{@sel})",
                            "Of its limit",
                            Share,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_feature_enabled{@sel, feature=\"free_page_reporting\"})",
                            "Reports",
                            Count,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_feature_enabled{@sel, feature=\"balloon\"})",
                            "Balloon",
                            Count,
                        ),
                    ],
                ),
            ],
        },
        Row {
            title: "Given back and taken again",
            panels: &[
                Panel::lines(
                    "Free page reports",
                    BytesPerSecond,
                    "Memory that guests reported free, and that they took again.",
                    REPORTED_AND_TAKEN_AGAIN,
                ),
                Panel::lines(
                    "Taken again by VM",
                    Share,
                    "Share of its memory that each guest takes again in a second, over 5 minutes.",
                    &[target(
                        "topk(10, vm:virtlens_memory_refault:ratio_rate5m{@sel})",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "Balloons",
                    BytesPerSecond,
                    "Memory that balloons took (inflate) and gave back (deflate), and that was discarded otherwise.",
                    &[target(
                        "sum by (operation) (rate(virtlens_balloon_bytes_total{@sel}[$__rate_interval]))",
                        "{{operation}}",
                    )],
                ),
                Panel::lines(
                    "Cost of giving back",
                    SecondsPerGib,
                    "Time that VMMs spend to give a GiB back to the host.",
                    &[target(
                        "sum(rate(virtlens_memory_release_seconds_total{@sel}[$__rate_interval]))\n\
                         / (\n  \
                           (sum(rate(virtlens_free_page_reported_bytes_total{@sel}[$__rate_interval])) or vector(0))\n  \
                           + (sum(rate(virtlens_balloon_bytes_total{@sel, operation!=\"deflate\"}[$__rate_interval])) or vector(0))\n\
                           > 0\n\
                         ) * 1073741824",
                        "s/GiB",
                    )],
                ),
                Panel::lines(
                    "Page faults of guests",
                    PerSecond,
                    "Memory that guests touch for the first time, or again after it was given back.",
                    &[target(
                        "sum by (vm) (rate(virtlens_memory_faults_total{@sel}[$__rate_interval]))",
                        "{{vm}}",
                    )],
                ),
            ],
        },
    ],
};

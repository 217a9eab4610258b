//! Memory that guests return and use again.

use super::REPORTED_AND_REFAULTED;
use crate::dashboard::Unit::{Bytes, BytesPerSecond, Count, PerSecond, SecondsPerGib, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const MEMORY: Dashboard = Dashboard {
    name: "memory",
    title: "Memory",
    description: "Memory of VMs: resident, released to the host and refaulted.",
    of: Of::Node,
    rows: &[
        Row {
            title: "Memory",
            is_open: true,
            panels: &[
                Panel::stacked(
                    "Resident by VM",
                    Bytes,
                    "Resident memory of the ten largest VMs.",
                    &[target(
                        "topk(10, sum by (@namespace, @pod, vm) (virtlens_memory_resident_bytes{@sel}))",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "All VMs",
                    Bytes,
                    "Guest memory, resident memory and its peak.",
                    &[
                        target("sum(virtlens_memory_guest_bytes{@sel})", "given"),
                        target("sum(virtlens_memory_resident_bytes{@sel})", "resident"),
                        target("sum(virtlens_memory_resident_peak_bytes{@sel})", "peak"),
                    ],
                ),
                Panel::table(
                    "VMs",
                    Bytes,
                    "Memory of each VM, its limit, and whether it can release memory.",
                    &[
                        column(
                            "max by (@vm) (virtlens_memory_resident_bytes{@sel})",
                            "Resident",
                            Bytes,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_guest_bytes{@sel})",
                            "Guest",
                            Bytes,
                        ),
                        column(
                            "max by (@vm) (virtlens_memory_resident_bytes{@sel}) / max by (@vm) (virtlens_memory_cgroup_limit_bytes{@sel})",
                            "Share of limit",
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
            title: "Released and refaulted",
            is_open: true,
            panels: &[
                Panel::lines(
                    "Free page reports",
                    BytesPerSecond,
                    "Memory that guests reported as free, and refaults.",
                    REPORTED_AND_REFAULTED,
                ),
                Panel::lines(
                    "Refaults by VM",
                    Share,
                    "Share of its memory that each guest refaults per second, over 5 minutes.",
                    &[target(
                        "topk(10, vm:virtlens_memory_refault:ratio_rate5m{@sel})",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "Balloons",
                    BytesPerSecond,
                    "Memory that balloons took (inflate) and returned (deflate), and memory discarded for other reasons.",
                    &[target(
                        "sum by (operation) (rate(virtlens_balloon_bytes_total{@sel}[$__rate_interval]))",
                        "{{operation}}",
                    )],
                ),
                Panel::lines(
                    "Cost of releasing memory",
                    SecondsPerGib,
                    "Time that VMMs spend to release one GiB to the host.",
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
                    "Page faults of guests on memory that they use first, or again after its release.",
                    &[target(
                        "sum by (vm) (rate(virtlens_memory_faults_total{@sel}[$__rate_interval]))",
                        "{{vm}}",
                    )],
                ),
            ],
        },
    ],
};

//! All VMs: an overview to find the ones to inspect.

use crate::dashboard::Unit::{Bytes, Cores, Count, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

/// A column of the busiest VMs.
macro_rules! busiest {
    ($query:literal) => {
        concat!(
            $query,
            "\nand on (@vm) topk(50, vm:virtlens_cpu_seconds:rate5m{@fleet})"
        )
    };
}

pub(super) const FLEET: Dashboard = Dashboard {
    name: "fleet",
    title: "Fleet",
    description: "All VMs, and those that need attention.",
    of: Of::Namespaces,
    rows: &[
        Row {
            title: "Now",
            is_open: true,
            panels: &[
                Panel::stat("VMs", Count, "Running VMs of the selected nodes.", &[target(
                    "sum(virtlens_vms{@node})",
                    "",
                )]),
                Panel::stat("Cores used", Cores, "Host CPU time of the selected VMs over 5 minutes.", &[
                    target("sum(vm:virtlens_cpu_seconds:rate5m{@fleet})", ""),
                ]),
                Panel::stat(
                    "Throttled",
                    Count,
                    "VMs that a CPU limit throttled for more than 10 % of the last 5 minutes.",
                    &[target(
                        "count(vm:virtlens_throttled:max_rate5m{@fleet} > 0.10) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Saturated workers",
                    Count,
                    "vhost workers, iothreads and virtiofsd threads that use more than 85 % of a core.",
                    &[target(
                        "count(vm_role_worker:virtlens_worker_cpu_seconds:rate5m{@fleet} > 0.85) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Misplaced VMs",
                    Count,
                    "VMs with a mismatch of guest and host topology.",
                    &[target(
                        "count(count by (@vm) (virtlens_misplaced_vcpus{@fleet})) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Memory released, 24 h",
                    Bytes,
                    "Memory that guests reported as free or balloons took in one day.",
                    &[target(
                        "(sum(increase(virtlens_free_page_reported_bytes_total{@fleet}[24h])) or vector(0))\n\
                         + (sum(increase(virtlens_balloon_bytes_total{@fleet, operation=\"inflate\"}[24h])) or vector(0))",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "VMs",
            is_open: true,
            panels: &[Panel::table(
                "Busiest VMs",
                Count,
                "Main values of the 50 VMs that use most CPU time over the last 5 minutes; a name links to the pod dashboard.",
                &[
                    column(busiest!("sum by (@vm) (vm:virtlens_cpu_seconds:rate5m{@fleet})"), "Cores", Cores),
                    column(busiest!("max by (@vm) (vm:virtlens_cpu_overhead:ratio_rate5m{@fleet})"), "Overhead", Share),
                    column(busiest!("max by (@vm) (vm_scope:virtlens_quota_used:ratio_rate5m{@fleet})"), "Limit used", Share),
                    column(busiest!("max by (@vm) (vm:virtlens_throttled:max_rate5m{@fleet})"), "Throttled", Share),
                    column(
                        busiest!("max by (@vm) (vm_role_worker:virtlens_worker_cpu_seconds:rate5m{@fleet})"),
                        "Busiest worker",
                        Cores,
                    ),
                    column(busiest!("max by (@vm) (vm:virtlens_vcpus_busy:ratio_rate5m{@fleet})"), "vCPUs busy", Share),
                    column(busiest!("max by (@vm) (vm:virtlens_vcpu_steal:max_rate5m{@fleet})"), "Waiting for CPU", Share),
                    column(busiest!("sum by (@vm) (virtlens_memory_resident_bytes{@fleet})"), "Resident", Bytes),
                    column(busiest!("count by (@vm) (virtlens_finding{@fleet})"), "Findings", Count),
                ],
            )],
        },
        Row {
            title: "Throttling",
            is_open: true,
            panels: &[Panel::table(
                "Most throttled VMs",
                Count,
                "The 50 VMs that a CPU limit throttles most over the last 5 minutes.",
                &[
                    column("topk(50, vm:virtlens_throttled:max_rate5m{@fleet}) > 0", "Throttled", Share),
                    column(
                        "max by (@vm) (vm_scope:virtlens_quota_used:ratio_rate5m{@fleet})\n\
                         and on (@vm) topk(50, vm:virtlens_throttled:max_rate5m{@fleet}) > 0",
                        "Limit used",
                        Share,
                    ),
                ],
            )],
        },
        Row {
            title: "Over time",
            is_open: true,
            panels: &[
                Panel::stacked(
                    "Cores by role",
                    Cores,
                    "Host CPU time of the selected VMs by role.",
                    &[target(
                        "sum by (role) (namespace_role:virtlens_cpu_seconds:rate5m{@fleet})",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "Findings by check",
                    Count,
                    "VMs that fail each check; virtlens doctor --checks explains them.",
                    &[target("count by (check) (virtlens_finding{@fleet})", "{{check}}")],
                ),
            ],
        },
        Row {
            title: "Findings",
            is_open: true,
            panels: &[Panel::table(
                "Findings",
                Count,
                "Checks that VMs fail at present, at most 100; virtlens doctor shows evidence and remedy.",
                &[target(
                    "topk(100, max by (@vm, check, severity) (virtlens_finding{@fleet}))",
                    "Found",
                )],
            )],
        },
    ],
};

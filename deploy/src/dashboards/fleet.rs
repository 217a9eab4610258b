//! All VMs: an overview to find the ones to inspect.

use crate::dashboard::Unit::{Bytes, Cores, Count, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const FLEET: Dashboard = Dashboard {
    name: "fleet",
    title: "Fleet",
    description: "All VMs, and those that need attention.",
    of: Of::Vms,
    rows: &[
        Row {
            title: "Now",
            panels: &[
                Panel::stat("VMs", Count, "Running VMs of the selected nodes.", &[target(
                    "sum(virtlens_vms{@node})",
                    "",
                )]),
                Panel::stat("Cores used", Cores, "Host CPU time of the selected VMs over 5 minutes.", &[
                    target("sum(vm:virtlens_cpu_seconds:rate5m{@sel})", ""),
                ]),
                Panel::stat(
                    "Throttled",
                    Count,
                    "VMs that a CPU limit throttled for more than 10 % of the last 5 minutes.",
                    &[target(
                        "count(vm:virtlens_throttled:max_rate5m{@sel} > 0.10) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Saturated workers",
                    Count,
                    "vhost workers, iothreads and virtiofsd threads that use more than 85 % of a core.",
                    &[target(
                        "count(vm_role_worker:virtlens_worker_cpu_seconds:rate5m{@sel} > 0.85) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Misplaced VMs",
                    Count,
                    "VMs with a mismatch of guest and host topology.",
                    &[target(
                        "count(count by (@vm) (virtlens_misplaced_vcpus{@sel})) or vector(0)",
                        "",
                    )],
                )
                .limit(1.0),
                Panel::stat(
                    "Memory released, 24 h",
                    Bytes,
                    "Memory that guests reported as free or balloons took in one day.",
                    &[target(
                        "(sum(increase(virtlens_free_page_reported_bytes_total{@sel}[24h])) or vector(0))\n\
                         + (sum(increase(virtlens_balloon_bytes_total{@sel, operation=\"inflate\"}[24h])) or vector(0))",
                        "",
                    )],
                ),
            ],
        },
        Row {
            title: "VMs",
            panels: &[Panel::table(
                "VMs by CPU use",
                Count,
                "Main values of each VM over the last 5 minutes; its name links to the pod dashboard.",
                &[
                    column("sum by (@vm) (vm:virtlens_cpu_seconds:rate5m{@sel})", "Cores", Cores),
                    column("max by (@vm) (vm:virtlens_cpu_overhead:ratio_rate5m{@sel})", "Overhead", Share),
                    column("max by (@vm) (vm_scope:virtlens_quota_used:ratio_rate5m{@sel})", "Limit used", Share),
                    column("max by (@vm) (vm:virtlens_throttled:max_rate5m{@sel})", "Throttled", Share),
                    column(
                        "max by (@vm) (vm_role_worker:virtlens_worker_cpu_seconds:rate5m{@sel})",
                        "Busiest worker",
                        Cores,
                    ),
                    column("max by (@vm) (vm:virtlens_vcpus_busy:ratio_rate5m{@sel})", "vCPUs busy", Share),
                    column("max by (@vm) (vm:virtlens_vcpu_steal:max_rate5m{@sel})", "Waiting for CPU", Share),
                    column("sum by (@vm) (virtlens_memory_resident_bytes{@sel})", "Resident", Bytes),
                    column("count by (@vm) (virtlens_finding{@sel})", "Findings", Count),
                ],
            )],
        },
        Row {
            title: "Over time",
            panels: &[
                Panel::stacked(
                    "Cores by role",
                    Cores,
                    "Host CPU time of the selected VMs by role.",
                    &[target(
                        "sum by (role) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval]))",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "Findings by check",
                    Count,
                    "VMs that fail each check; virtlens doctor --checks explains them.",
                    &[target("count by (check) (virtlens_finding{@sel})", "{{check}}")],
                ),
            ],
        },
        Row {
            title: "Findings",
            panels: &[Panel::table(
                "Findings",
                Count,
                "Checks that VMs fail at present; virtlens doctor shows evidence and remedy.",
                &[target(
                    "max by (@vm, check, severity) (virtlens_finding{@sel})",
                    "Found",
                )],
            )],
        },
    ],
};

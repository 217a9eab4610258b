//! One node: the resources that its VMs use.

use super::REPORTED_AND_REFAULTED;
use crate::dashboard::Unit::{Bytes, BytesPerSecond, Cores, Count, PerSecond, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const NODE: Dashboard = Dashboard {
    name: "node",
    title: "Node",
    description: "Resource use of a node's VMs, and contention between them.",
    of: Of::Node,
    rows: &[
        Row {
            title: "CPU",
            is_open: true,
            panels: &[
                Panel::stacked(
                    "Cores by role",
                    Cores,
                    "Host CPU time of the node's VMs by role.",
                    &[target(
                        "sum by (role) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval]))",
                        "{{role}}",
                    )],
                ),
                Panel::stacked(
                    "Cores by VM",
                    Cores,
                    "Host CPU time of the ten busiest VMs, all roles.",
                    &[target(
                        "topk(10, sum by (@namespace, @pod, vm) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval])))",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                ),
                Panel::stacked(
                    "vCPU time by pCPU",
                    Cores,
                    "CPU time of vCPUs on each pCPU.",
                    &[target(
                        "sum by (instance, cpu) (rate(virtlens_vcpu_pcpu_seconds_total{@sel}[$__rate_interval]))",
                        "{{instance}} CPU {{cpu}}",
                    )],
                ),
                Panel::lines(
                    "VMs",
                    Count,
                    "Running VMs of the node.",
                    &[target("virtlens_vms{@node}", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Contention",
            is_open: true,
            panels: &[
                Panel::lines(
                    "vCPU steal",
                    Share,
                    "The vCPU of each VM that waits most for a CPU over 5 minutes, throttling excluded.",
                    &[target(
                        "topk(10, vm:virtlens_vcpu_steal:max_rate5m{@sel})",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                )
                .limit(0.10),
                Panel::lines(
                    "Waiting threads",
                    Cores,
                    "Runnable threads that did not run, by role: waiting for a CPU, or throttled.",
                    &[target(
                        "sum by (role) (rate(virtlens_cpu_wait_seconds_total{@sel}[$__rate_interval]))",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "vCPU migrations",
                    PerSecond,
                    "Migrations of vCPUs between pCPUs, by distance.",
                    &[target(
                        "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                        "{{distance}}",
                    )],
                ),
                Panel::lines(
                    "Agent",
                    Cores,
                    "CPU time of the agent.",
                    &[target(
                        "sum by (instance) (rate(process_cpu_seconds_total{@node, job=~\".*virtlens.*\"}[$__rate_interval]))",
                        "{{instance}}",
                    )],
                ),
            ],
        },
        Row {
            title: "Memory",
            is_open: true,
            panels: &[
                Panel::stacked(
                    "Resident by VM",
                    Bytes,
                    "Resident memory of the ten largest VMs of the node.",
                    &[target(
                        "topk(10, sum by (@namespace, @pod, vm) (virtlens_memory_resident_bytes{@sel}))",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "Released and refaulted",
                    BytesPerSecond,
                    "Memory that guests reported as free, and refaults.",
                    REPORTED_AND_REFAULTED,
                ),
            ],
        },
    ],
};

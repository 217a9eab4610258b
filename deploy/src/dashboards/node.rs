//! One node: the resources that its VMs use.

use super::REPORTED_AND_TAKEN_AGAIN;
use crate::dashboard::Unit::{Bytes, BytesPerSecond, Cores, Count, PerSecond, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const NODE: Dashboard = Dashboard {
    name: "node",
    title: "Node",
    description: "What the VMs of a node take from it, and from each other.",
    of: Of::Vms,
    rows: &[
        Row {
            title: "CPU",
            panels: &[
                Panel::stacked(
                    "Cores by role",
                    Cores,
                    "Host CPU time of the node's VMs by what their threads do.",
                    &[target(
                        "sum by (role) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval]))",
                        "{{role}}",
                    )],
                ),
                Panel::stacked(
                    "Cores by VM",
                    Cores,
                    "Host CPU time of the ten VMs that use most, all roles together.",
                    &[target(
                        "topk(10, sum by (namespace, pod, vm) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval])))",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                ),
                Panel::stacked(
                    "vCPU time by CPU of the host",
                    Cores,
                    "How much of each of the host's CPUs is used by vCPUs; only with the agent's setting pcpu_series.",
                    &[target(
                        "sum by (instance, cpu) (rate(virtlens_vcpu_pcpu_seconds_total{@sel}[$__rate_interval]))",
                        "{{instance}} CPU {{cpu}}",
                    )],
                ),
                Panel::lines(
                    "VMs",
                    Count,
                    "VMs that run on the node.",
                    &[target("virtlens_vms{@node}", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Who waits for whom",
            panels: &[
                Panel::lines(
                    "vCPUs that wait for a CPU",
                    Share,
                    "Of each VM the vCPU that waits most, throttling left out, over 5 minutes.",
                    &[target(
                        "topk(10, vm:virtlens_vcpu_steal:max_rate5m{@sel})",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                )
                .limit(0.10),
                Panel::lines(
                    "Threads that wait",
                    Cores,
                    "Threads by role that could run but did not, throttled ones included.",
                    &[target(
                        "sum by (role) (rate(virtlens_cpu_wait_seconds_total{@sel}[$__rate_interval]))",
                        "{{role}}",
                    )],
                ),
                Panel::lines(
                    "Moves of vCPUs",
                    PerSecond,
                    "How often vCPUs moved to another CPU of the host, by distance.",
                    &[target(
                        "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                        "{{distance}}",
                    )],
                ),
                Panel::lines(
                    "The agent",
                    Cores,
                    "What the agent itself costs the node.",
                    &[target(
                        "sum by (instance) (rate(process_cpu_seconds_total{@node, job=~\".*virtlens.*\"}[$__rate_interval]))",
                        "{{instance}}",
                    )],
                ),
            ],
        },
        Row {
            title: "Memory",
            panels: &[
                Panel::stacked(
                    "Resident by VM",
                    Bytes,
                    "Memory of the node that is held by the ten largest VMs.",
                    &[target(
                        "topk(10, sum by (namespace, pod, vm) (virtlens_memory_resident_bytes{@sel}))",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                ),
                Panel::lines(
                    "Given back and taken again",
                    BytesPerSecond,
                    "Memory that guests reported free, and that they took again.",
                    REPORTED_AND_TAKEN_AGAIN,
                ),
            ],
        },
    ],
};

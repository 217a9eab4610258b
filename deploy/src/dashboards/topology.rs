//! Placement of vCPUs, compared with the topology that their guests see.

use crate::dashboard::Unit::{Cores, Count, PerSecond};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const TOPOLOGY: Dashboard = Dashboard {
    name: "topology",
    title: "Topology",
    description: "Placement of vCPUs on the host, compared with the guest topology.",
    of: Of::Node,
    rows: &[
        Row {
            title: "Mismatches",
            is_open: true,
            panels: &[
                Panel::table(
                    "Mismatches",
                    Count,
                    "vCPUs affected by a mismatch, by kind; virtlens topology draws their placement.",
                    &[target("max by (@vm, kind) (virtlens_misplaced_vcpus{@sel})", "vCPUs")],
                ),
                Panel::lines(
                    "Cores used under mismatch",
                    Cores,
                    "CPU time of vCPUs while a mismatch of the kind affected them.",
                    &[target(
                        "sum by (kind) (rate(virtlens_misplaced_seconds_total{@sel}[$__rate_interval]))",
                        "{{kind}}",
                    )],
                ),
                Panel::lines(
                    "vCPU pairs",
                    Count,
                    "Guest siblings on one host core (aligned) or on several (split), and vCPUs of different guest cores on one host core (shared).",
                    &[target("sum by (state) (virtlens_topology_pairs{@sel})", "{{state}}")],
                ),
            ],
        },
        Row {
            title: "Pinning and migrations",
            is_open: true,
            panels: &[
                Panel::table(
                    "Pinning",
                    Count,
                    "vCPUs whose affinity allows only one pCPU or core, and all vCPUs; a VM without pinned vCPUs floats.",
                    &[
                        column("max by (@vm) (virtlens_vcpus_pinned{@sel})", "Pinned", Count),
                        column("max by (@vm) (virtlens_vcpus_online{@sel})", "vCPUs", Count),
                    ],
                )
                .width(12),
                Panel::table(
                    "Guest topology",
                    Count,
                    "Packages, cores per package and threads per core that CPUID reports to each guest.",
                    &[target(
                        "max by (@vm, packages, cores, threads) (virtlens_guest_topology_info{@sel})",
                        "Value",
                    )],
                )
                .width(12),
                Panel::lines(
                    "vCPU migrations by distance",
                    PerSecond,
                    "Migrations between threads of one core (smt), cores of one cache, caches of one node, and nodes.",
                    &[target(
                        "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                        "{{distance}}",
                    )],
                ),
                Panel::lines(
                    "vCPU migrations by VM",
                    PerSecond,
                    "The ten VMs with the most vCPU migrations.",
                    &[target(
                        "topk(10, sum by (@namespace, @pod, vm) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval])))",
                        "{{@namespace}}/{{@pod}} {{vm}}",
                    )],
                ),
            ],
        },
    ],
};

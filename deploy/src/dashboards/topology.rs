//! Placement of vCPUs, compared with the topology that their guests see.

use crate::dashboard::Unit::{Cores, Count, PerSecond};
use crate::dashboard::{Dashboard, Of, Panel, Row, column, target};

pub(super) const TOPOLOGY: Dashboard = Dashboard {
    name: "topology",
    title: "Topology",
    description: "Where vCPUs sit on the host's CPUs, against what their guests believe.",
    of: Of::Vms,
    rows: &[
        Row {
            title: "Out of place",
            panels: &[
                Panel::table(
                    "Mismatches",
                    Count,
                    "vCPUs that suffer from a mismatch, by kind; virtlens topology draws where they sit.",
                    &[target("max by (@vm, kind) (virtlens_topology_mismatch{@sel})", "vCPUs")],
                ),
                Panel::lines(
                    "Cores used out of place",
                    Cores,
                    "CPU time that vCPUs used while a mismatch of the kind held for them.",
                    &[target(
                        "sum by (kind) (rate(virtlens_misplaced_seconds_total{@sel}[$__rate_interval]))",
                        "{{kind}}",
                    )],
                ),
                Panel::lines(
                    "Pairs of vCPUs",
                    Count,
                    "Guest siblings on one core of the host (aligned) or on several (split), and strangers on one (shared).",
                    &[target("sum by (state) (virtlens_topology_pairs{@sel})", "{{state}}")],
                ),
            ],
        },
        Row {
            title: "Pinned and moved",
            panels: &[
                Panel::table(
                    "Pinning",
                    Count,
                    "vCPUs that may run on one CPU or core only, beside all that KVM holds; none pinned is a VM that floats.",
                    &[
                        column("max by (@vm) (virtlens_vcpus_pinned{@sel})", "Pinned", Count),
                        column("max by (@vm) (virtlens_vcpus{@sel, kind=\"online\"})", "vCPUs", Count),
                    ],
                )
                .width(12),
                Panel::table(
                    "What guests are told",
                    Count,
                    "Packages, cores of a package and threads of a core, as CPUID tells each guest.",
                    &[target(
                        "max by (@vm, packages, cores, threads) (virtlens_guest_topology_info{@sel})",
                        "Told",
                    )],
                )
                .width(12),
                Panel::lines(
                    "Moves of vCPUs by distance",
                    PerSecond,
                    "Moves between threads of a core (smt), cores of a cache, caches of a node, nodes.",
                    &[target(
                        "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                        "{{distance}}",
                    )],
                ),
                Panel::lines(
                    "Moves of vCPUs by VM",
                    PerSecond,
                    "The ten VMs whose vCPUs move most.",
                    &[target(
                        "topk(10, sum by (namespace, pod, vm) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval])))",
                        "{{namespace}}/{{pod}} {{vm}}",
                    )],
                ),
            ],
        },
    ],
};

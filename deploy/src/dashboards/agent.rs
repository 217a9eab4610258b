//! The agent itself: completeness and cost of its data.

use crate::dashboard::Unit::{Bytes, Cores, Count, PerSecond, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const AGENT: Dashboard = Dashboard {
    name: "agent",
    title: "Agent",
    description: "Completeness of the agents' data, and the agents' cost.",
    of: Of::Agents,
    rows: &[
        Row {
            title: "Completeness",
            is_open: true,
            panels: &[
                Panel::table(
                    "Sources",
                    Count,
                    "Whether each source works (1) on each node; virtlens check shows the reason if not.",
                    &[target("min by (cluster, instance, source) (virtlens_source_up{@node})", "Up")],
                )
                .width(12),
                Panel::table(
                    "Versions",
                    Count,
                    "Version of the agent on each node.",
                    &[target(
                        "max by (cluster, instance, version, revision, rustversion) (virtlens_build_info{@node})",
                        "Agents",
                    )],
                )
                .width(12),
                Panel::lines(
                    "Lost",
                    PerSecond,
                    "Values that the agent or a BPF program could not keep or read, by reason; other values may then be too low.",
                    &[target(
                        "sum by (instance, reason) (rate(virtlens_dropped_total{@node}[$__rate_interval]))",
                        "{{instance}} {{reason}}",
                    )],
                ),
                Panel::lines(
                    "BPF maps",
                    Share,
                    "Fill level of BPF maps with a fixed size.",
                    &[target(
                        "virtlens_bpf_map_entries{@node} / virtlens_bpf_map_max_entries{@node}",
                        "{{instance}} {{map}}",
                    )],
                )
                .limit(0.9),
            ],
        },
        Row {
            title: "Pod names",
            is_open: true,
            panels: &[Panel::lines(
                "Age of pod names",
                Seconds,
                "Time since the last answer of each agent's source of pod names.",
                &[target(
                    "max by (instance, source) (virtlens_metadata_age_seconds{@node})",
                    "{{instance}} {{source}}",
                )],
            )],
        },
        Row {
            title: "Cost",
            is_open: true,
            panels: &[
                Panel::lines(
                    "CPU",
                    Cores,
                    "CPU time of the agent.",
                    &[target(
                        "sum by (instance) (rate(process_cpu_seconds_total{@node, job=~\".*virtlens.*\"}[$__rate_interval]))",
                        "{{instance}}",
                    )],
                ),
                Panel::lines(
                    "Memory",
                    Bytes,
                    "Resident memory of the agent.",
                    &[target(
                        "sum by (instance) (process_resident_memory_bytes{@node, job=~\".*virtlens.*\"})",
                        "{{instance}}",
                    )],
                ),
                Panel::lines(
                    "Collection time",
                    Seconds,
                    "Duration of a collection, and of each source whose duration is measured.",
                    &[
                        target("virtlens_collection_seconds{@node}", "{{instance}} all"),
                        target("virtlens_source_duration_seconds{@node}", "{{instance}} {{source}}"),
                    ],
                ),
                Panel::lines(
                    "BPF programs",
                    Cores,
                    "Time in each BPF program; counted only while kernel.bpf_stats_enabled is 1.",
                    &[target(
                        "sum by (instance, program) (rate(virtlens_bpf_program_run_seconds_total{@node}[$__rate_interval]))",
                        "{{instance}} {{program}}",
                    )],
                ),
                Panel::lines(
                    "Runs of BPF programs",
                    PerSecond,
                    "Runs of each BPF program; counted only while kernel.bpf_stats_enabled is 1.",
                    &[target(
                        "sum by (instance, program) (rate(virtlens_bpf_program_runs_total{@node}[$__rate_interval]))",
                        "{{instance}} {{program}}",
                    )],
                ),
                Panel::lines(
                    "Open file descriptors",
                    Count,
                    "File descriptors of the agent.",
                    &[target(
                        "sum by (instance) (process_open_fds{@node, job=~\".*virtlens.*\"})",
                        "{{instance}}",
                    )],
                ),
                Panel::lines(
                    "Uptime",
                    Seconds,
                    "Time since the agent started.",
                    &[target(
                        "time() - max by (instance) (process_start_time_seconds{@node, job=~\".*virtlens.*\"})",
                        "{{instance}}",
                    )],
                ),
            ],
        },
    ],
};

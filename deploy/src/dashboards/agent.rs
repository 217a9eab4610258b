//! The agent itself: completeness and cost of its data.

use crate::dashboard::Unit::{Bytes, Cores, Count, PerSecond, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const AGENT: Dashboard = Dashboard {
    name: "agent",
    title: "Agent",
    description: "Whether the agents' numbers are whole, and what they cost.",
    of: Of::Agents,
    rows: &[
        Row {
            title: "Whole",
            panels: &[
                Panel::table(
                    "Sources",
                    Count,
                    "Which sources of facts work (1) on which node; virtlens check says why one does not.",
                    &[target("min by (cluster, instance, source) (virtlens_source_up{@node})", "Up")],
                )
                .width(12),
                Panel::table(
                    "Versions",
                    Count,
                    "Which version of the agent runs where.",
                    &[target(
                        "max by (cluster, instance, version, revision, rustversion) (virtlens_build_info{@node})",
                        "Runs",
                    )],
                )
                .width(12),
                Panel::lines(
                    "Lost",
                    PerSecond,
                    "What the agent could not keep or read, by reason: numbers may be too low.",
                    &[target(
                        "sum by (instance, reason) (rate(virtlens_dropped_total{@node}[$__rate_interval]))",
                        "{{instance}} {{reason}}",
                    )],
                ),
                Panel::lines(
                    "BPF maps",
                    Share,
                    "How full the BPF maps are that can fill up.",
                    &[target(
                        "virtlens_bpf_map_entries{@node} / virtlens_bpf_map_max_entries{@node}",
                        "{{instance}} {{map}}",
                    )],
                )
                .limit(0.9),
            ],
        },
        Row {
            title: "Names",
            panels: &[Panel::lines(
                "Age of pods' names",
                Seconds,
                "How long ago each agent last heard what its node's pods are called.",
                &[target(
                    "max by (instance, source) (virtlens_metadata_age_seconds{@node})",
                    "{{instance}} {{source}}",
                )],
            )],
        },
        Row {
            title: "Cost",
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
                    "One collection",
                    Seconds,
                    "How long it takes to read the node and, of that, each source that is timed.",
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
                    "How often each BPF program ran; counted only while kernel.bpf_stats_enabled is 1.",
                    &[target(
                        "sum by (instance, program) (rate(virtlens_bpf_program_runs_total{@node}[$__rate_interval]))",
                        "{{instance}} {{program}}",
                    )],
                ),
                Panel::lines(
                    "Open files",
                    Count,
                    "File descriptors of the agent.",
                    &[target(
                        "sum by (instance) (process_open_fds{@node, job=~\".*virtlens.*\"})",
                        "{{instance}}",
                    )],
                ),
                Panel::lines(
                    "Runs for",
                    Seconds,
                    "How long ago the agent started.",
                    &[target(
                        "time() - max by (instance) (process_start_time_seconds{@node, job=~\".*virtlens.*\"})",
                        "{{instance}}",
                    )],
                ),
            ],
        },
    ],
};

//! The alerts. Thresholds equal those of `virtlens doctor` (`virtlens_model`'s
//! `finding/bounds.rs`) if it has one; alerts must hold for minutes, findings for
//! seconds.

use super::Alert;
use super::Severity::{Info, Warning};

/// Alerts about VMs.
pub const VM_ALERTS: &[Alert] = &[
    // The alert shows that the VM is throttled, that it is really at its limit, and which
    // role used the quota. Throttled periods alone show none of these: an idle pod that
    // bursts has few periods and is throttled in many of them.
    Alert {
        name: "VirtlensCPUQuotaSaturated",
        severity: Warning,
        query: "vm_scope:virtlens_throttled:ratio_rate5m\n\
                and on (@vm, scope)\n\
                vm_scope:virtlens_quota_used:ratio_rate5m > 0.90\n\
                and on (@vm, scope)\n\
                (\n  \
                  vm_scope:virtlens_throttled:ratio_rate5m > 0.25\n  \
                  or on (@vm, scope)\n  \
                  vm_scope:virtlens_throttled_periods:ratio_rate5m > 0.25\n\
                )",
        hold: "15m",
        keep: Some("5m"),
        summary: "A VM is capped by its CPU limit.",
        description: "@who stood still {{ $value | humanizePercentage }} of the time by the CPU \
                      limit of its {{ $labels.scope }}, and used\
                      {{ range @q{vm_scope:virtlens_quota_used:ratio_rate5m} }} \
                      {{ .Value | humanizePercentage }}{{ end }} of\
                      {{ range @q{virtlens_cfs_quota_cores} }} {{ .Value | humanize }}{{ end }} \
                      cores. The limit was eaten by:\
                      {{ range @q{vm_scope_role:virtlens_quota_used:share_rate5m} }}\
                      {{ if gt .Value 0.005 }} {{ .Labels.role }} \
                      {{ .Value | humanizePercentage }}{{ end }}{{ end }}.",
    },
    Alert {
        name: "VirtlensIOHelperThrottled",
        severity: Warning,
        query: "vm_role:virtlens_cpu_wait_seconds:rate5m{role=~\"vhost|virtiofsd|iothread\"} > 0.10\n\
                and on (@vm, role)\n\
                (\n  \
                  vm_scope_role:virtlens_quota_used:share_rate5m > 0\n  \
                  and on (@vm, scope)\n  \
                  vm_scope:virtlens_throttled:ratio_rate5m > 0.10\n\
                )",
        hold: "10m",
        keep: Some("5m"),
        summary: "I/O threads of a VM wait under a CPU limit that is throttled.",
        description: "Threads of {{ $labels.role }} of @who together could run but did not for \
                      {{ $value | humanizePercentage }} of the time, under a limit that is \
                      throttled. The guest's I/O takes as much longer, up to a period (100 ms) each \
                      time.",
    },
    // Only where vCPUs share the limit: Kata's overhead cgroup has no vCPUs.
    Alert {
        name: "VirtlensQuotaConsumedByHelpers",
        severity: Info,
        query: "sum by (@vm, scope) (vm_scope_role:virtlens_quota_used:share_rate5m{role!=\"vcpu\"}) > 0.40\n\
                and on (@vm, scope)\n\
                vm_scope_role:virtlens_quota_used:share_rate5m{role=\"vcpu\"} > 0\n\
                and on (@vm, scope)\n\
                vm_scope:virtlens_throttled:ratio_rate5m > 0.10",
        hold: "15m",
        keep: None,
        summary: "Much of a throttled CPU limit goes to other threads than vCPUs.",
        description: "{{ $value | humanizePercentage }} of what @who used of the CPU limit of its \
                      {{ $labels.scope }} was not its vCPUs':\
                      {{ range @q{vm_scope_role:virtlens_quota_used:share_rate5m} }}\
                      {{ if gt .Value 0.005 }} {{ .Labels.role }} \
                      {{ .Value | humanizePercentage }}{{ end }}{{ end }}.",
    },
    Alert {
        name: "VirtlensVhostWorkerSaturated",
        severity: Warning,
        query: "vm_role_worker:virtlens_worker_cpu_seconds:rate5m{role=\"vhost\"} > 0.85",
        hold: "10m",
        keep: Some("5m"),
        summary: "A vhost worker of a VM is at the end of its core.",
        description: "vhost worker {{ $labels.worker }} of @who uses \
                      {{ $value | humanizePercentage }} of a core; it is one thread, so one core \
                      is its end.",
    },
    Alert {
        name: "VirtlensStorageWorkerSaturated",
        severity: Warning,
        query: "vm_role_worker:virtlens_worker_cpu_seconds:rate5m{role=~\"virtiofsd|iothread\"} > 0.85",
        hold: "10m",
        keep: Some("5m"),
        summary: "A virtiofsd thread or an iothread of a VM is at the end of its core.",
        description: "{{ $labels.role }} worker {{ $labels.worker }} of @who uses \
                      {{ $value | humanizePercentage }} of a core.",
    },
    Alert {
        name: "VirtlensVCPUsSaturated",
        severity: Warning,
        query: "vm:virtlens_vcpus_busy:ratio_rate5m > 0.95\n\
                unless on (@vm)\n\
                max by (@vm) (vm_scope:virtlens_throttled:ratio_rate5m) > 0.10",
        hold: "15m",
        keep: None,
        summary: "All vCPUs of a VM are busy, and no CPU limit is in the way.",
        description: "@who uses {{ $value | humanizePercentage }} of its vCPUs, polling left out: \
                      it is too small for what it does.",
    },
    Alert {
        name: "VirtlensVCPUStealHigh",
        severity: Warning,
        query: "vm:virtlens_vcpu_steal:max_rate5m > 0.10",
        hold: "15m",
        keep: None,
        summary: "A vCPU waits for a CPU of the host.",
        description: "The vCPU of @who that waits most could run but did not for \
                      {{ $value | humanizePercentage }} of the time, throttling left out.",
    },
    Alert {
        name: "VirtlensHaltPollingHigh",
        severity: Info,
        query: "vm:virtlens_halt_poll:ratio_rate5m > 0.30\n\
                and on (@vm)\n\
                sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"}) > 0.20",
        hold: "30m",
        keep: None,
        summary: "Much of the vCPUs' CPU time is halt polling.",
        description: "vCPUs of @who spend {{ $value | humanizePercentage }} of their CPU time on \
                      polling for a wake-up.",
    },
    Alert {
        name: "VirtlensDefaultVCPUsWithCPULimit",
        severity: Info,
        query: "max by (@vm) (virtlens_finding{check=\"default_vcpus_with_limit\"}) == 1",
        hold: "15m",
        keep: None,
        summary: "A Kata VM was given both default_vcpus and a CPU limit.",
        description: "@who was told to boot more than one vCPU and has a CPU limit: all of its \
                      vCPUs share that limit.",
    },
    // A split last-level cache costs little, so it is only on the dashboard.
    Alert {
        name: "VirtlensTopologyMismatch",
        severity: Warning,
        query: "max by (@vm, kind) (virtlens_topology_mismatch{kind!=\"llc_split\"}) > 0",
        hold: "10m",
        keep: None,
        summary: "vCPUs do not sit where their guest believes.",
        description: "{{ $labels.kind }} concerns {{ $value }} vCPUs of @who.",
    },
    Alert {
        name: "VirtlensMemoryNotReturned",
        severity: Info,
        query: "(\n  \
                  max by (@vm) (virtlens_memory_resident_bytes)\n  \
                  / max by (@vm) (virtlens_memory_guest_bytes) > 0.90\n\
                )\n\
                and on (@vm)\n\
                max by (@vm) (virtlens_memory_feature_enabled{feature=\"free_page_reporting\"}) == 1\n\
                and on (@vm)\n\
                sum by (@vm) (increase(virtlens_free_page_reported_bytes_total[6h])) == 0\n\
                and on (@vm)\n\
                max by (@vm) (virtlens_memory_guest_bytes offset 6h) > 0",
        hold: "1h",
        keep: None,
        summary: "Free page reporting is on, but no memory came back for 6 hours.",
        description: "@who holds {{ $value | humanizePercentage }} of its memory, and its guest \
                      reported none of it free.",
    },
    Alert {
        name: "VirtlensMemoryRefaultHigh",
        severity: Info,
        query: "60 * vm:virtlens_memory_refault:ratio_rate5m > 0.20",
        hold: "15m",
        keep: None,
        summary: "A guest reports memory free and takes it again all the time.",
        description: "@who takes {{ $value | humanizePercentage }} of its memory again each minute.",
    },
    Alert {
        name: "VirtlensBalloonThrashing",
        severity: Info,
        query: "sum by (@vm) (increase(virtlens_balloon_bytes_total{operation=\"inflate\"}[15m]))\n\
                / max by (@vm) (virtlens_memory_guest_bytes) > 0.25\n\
                and on (@vm)\n\
                sum by (@vm) (increase(virtlens_balloon_bytes_total{operation=\"deflate\"}[15m]))\n\
                / max by (@vm) (virtlens_memory_guest_bytes) > 0.25",
        hold: "15m",
        keep: None,
        summary: "A balloon goes up and down.",
        description: "The balloon of @who took {{ $value | humanizePercentage }} of its memory in \
                      15 minutes, and gave back more than 25% meanwhile.",
    },
    // Compares resident memory, which cannot be reclaimed; the usage of the cgroup may be
    // page cache. Huge pages have a separate limit.
    Alert {
        name: "VirtlensMemoryNearLimit",
        severity: Warning,
        query: "(\n  \
                  max by (@vm) (virtlens_memory_resident_bytes)\n  \
                  - (\n    \
                    max by (@vm) (virtlens_memory_resident_huge_bytes)\n    \
                    or 0 * max by (@vm) (virtlens_memory_resident_bytes)\n  \
                  )\n\
                )\n\
                / max by (@vm) (virtlens_memory_cgroup_limit_bytes) > 0.95",
        hold: "15m",
        keep: None,
        summary: "A VM is about to be killed for its memory limit.",
        description: "The VMM of @who holds {{ $value | humanizePercentage }} of the memory that \
                      its cgroup may have; beyond that the host kills it.",
    },
];

/// Alerts about the agent.
pub const AGENT_ALERTS: &[Alert] = &[
    Alert {
        name: "VirtlensAgentDown",
        severity: Warning,
        query: "up{job=~\".*virtlens.*\"} == 0",
        hold: "10m",
        keep: None,
        summary: "The agent of a node is not scraped.",
        description: "{{ $labels.instance }} did not answer: nothing is known of its VMs.",
    },
    Alert {
        name: "VirtlensAgentBlind",
        severity: Warning,
        query: "max by (cluster, instance) (virtlens_source_up{source=~\"task_pass|proc\"}) == 0",
        hold: "10m",
        keep: None,
        summary: "The agent of a node answers, but cannot read the node's VMs.",
        description: "On {{ $labels.instance }} neither BPF nor /proc can be read; virtlens check \
                      says why.",
    },
    Alert {
        name: "VirtlensAgentSourceDown",
        severity: Info,
        query: "min by (cluster, instance, source) (virtlens_source_up) == 0",
        hold: "15m",
        keep: None,
        summary: "The agent of a node does without one of its sources.",
        description: "{{ $labels.source }} is off on {{ $labels.instance }}; virtlens check says \
                      why, and what is lost.",
    },
    Alert {
        name: "VirtlensAgentDropping",
        severity: Warning,
        // Unavailable names do not affect any number: VirtlensMetadataStale covers them.
        query: "sum by (cluster, instance, reason) (rate(virtlens_dropped_total{reason!=\"pods_unread\"}[5m])) > 0",
        hold: "15m",
        keep: None,
        summary: "The agent of a node loses what it should count.",
        description: "{{ $labels.instance }} loses {{ printf \"%.2g\" $value }} things a second for \
                      {{ $labels.reason }}: its numbers may be too low.",
    },
    Alert {
        name: "VirtlensAgentMapFilling",
        severity: Warning,
        query: "max by (cluster, instance, map) (virtlens_bpf_map_entries)\n\
                / max by (cluster, instance, map) (virtlens_bpf_map_max_entries) > 0.90",
        hold: "15m",
        keep: None,
        summary: "A BPF map of the agent is almost full.",
        description: "The map {{ $labels.map }} on {{ $labels.instance }} is \
                      {{ $value | humanizePercentage }} full; what does not fit will be dropped.",
    },
    Alert {
        name: "VirtlensMetadataStale",
        severity: Warning,
        query: "max by (cluster, instance, source) (virtlens_metadata_age_seconds) > 300",
        hold: "10m",
        keep: None,
        summary: "The agent of a node has not heard of its pods for long.",
        description: "{{ $labels.source }} last told {{ $labels.instance }} what its pods are called \
                      {{ $value | humanizeDuration }} ago: pods that are newer have no names.",
    },
    Alert {
        name: "VirtlensAgentCPUHigh",
        severity: Info,
        query: "sum by (cluster, instance) (rate(process_cpu_seconds_total{job=~\".*virtlens.*\"}[5m])) > 0.05",
        hold: "30m",
        keep: None,
        summary: "The agent of a node costs more CPU than it should.",
        description: "The agent on {{ $labels.instance }} uses {{ $value | humanizePercentage }} \
                      of a core.",
    },
];

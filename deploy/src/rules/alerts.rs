//! The alerts. Thresholds equal those of `virtlens doctor` (`virtlens_model`'s
//! `finding/bounds.rs`) if it has one; alerts must hold for minutes, findings for
//! seconds.

use super::Alert;
use super::Severity::{Info, Warning};

/// Alerts about CPU time of VMs and their placement.
pub const CPU_ALERTS: &[Alert] = &[
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
        summary: "A CPU limit throttles a VM.",
        description: "The CPU limit of the {{ $labels.scope }} of @who throttled it for \
                      {{ $value | humanizePercentage }} of the time. It used\
                      {{ range @q{vm_scope:virtlens_quota_used:ratio_rate5m} }} \
                      {{ .Value | humanizePercentage }}{{ end }} of\
                      {{ range @q{virtlens_cfs_quota_cores} }} {{ .Value | humanize }}{{ end }} \
                      cores, by role:\
                      {{ range @q{vm_scope_role:virtlens_quota_used:share_rate5m} }}\
                      {{ if gt .Value 0.005 }} {{ .Labels.role }} \
                      {{ .Value | humanizePercentage }}{{ end }}{{ end }}.",
        check: Some("quota_capped"),
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
        summary: "A CPU limit throttles I/O threads of a VM.",
        description: "Threads of {{ $labels.role }} of @who were runnable without running for \
                      {{ $value | humanizePercentage }} of the time under a limit that \
                      throttles. Guest I/O takes up to one period (100 ms) longer.",
        check: Some("io_throttled"),
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
        summary: "Threads other than vCPUs use much of a throttled CPU limit.",
        description: "Threads other than vCPUs used {{ $value | humanizePercentage }} of the CPU \
                      time of @who under the CPU limit of its {{ $labels.scope }}:\
                      {{ range @q{vm_scope_role:virtlens_quota_used:share_rate5m} }}\
                      {{ if gt .Value 0.005 }} {{ .Labels.role }} \
                      {{ .Value | humanizePercentage }}{{ end }}{{ end }}.",
        check: None,
    },
    Alert {
        name: "VirtlensVhostWorkerSaturated",
        severity: Warning,
        query: "vm_role_worker:virtlens_worker_cpu_seconds:rate5m{role=\"vhost\"} > 0.85",
        hold: "10m",
        keep: Some("5m"),
        summary: "A vhost worker of a VM saturates its core.",
        description: "vhost worker {{ $labels.worker }} of @who uses \
                      {{ $value | humanizePercentage }} of a core; it is one thread and cannot \
                      use more than one core.",
        check: Some("vhost_saturated"),
    },
    Alert {
        name: "VirtlensStorageWorkerSaturated",
        severity: Warning,
        query: "vm_role_worker:virtlens_worker_cpu_seconds:rate5m{role=~\"virtiofsd|iothread\"} > 0.85",
        hold: "10m",
        keep: Some("5m"),
        summary: "A virtiofsd thread or an iothread of a VM saturates its core.",
        description: "{{ $labels.role }} worker {{ $labels.worker }} of @who uses \
                      {{ $value | humanizePercentage }} of a core.",
        check: Some("virtiofsd_saturated|iothread_saturated"),
    },
    Alert {
        name: "VirtlensVCPUsSaturated",
        severity: Info,
        query: "vm:virtlens_vcpus_busy:ratio_rate5m > 0.95\n\
                unless on (@vm)\n\
                vm:virtlens_throttled:max_rate5m > 0.10",
        hold: "15m",
        keep: None,
        summary: "All vCPUs of a VM are busy, and no CPU limit throttles it.",
        description: "@who uses {{ $value | humanizePercentage }} of its vCPUs, halt polling \
                      excluded: it is too small for its load.",
        check: Some("vcpus_saturated"),
    },
    Alert {
        name: "VirtlensVCPUStealHigh",
        severity: Warning,
        query: "vm:virtlens_vcpu_steal:max_rate5m > 0.10",
        hold: "15m",
        keep: None,
        summary: "A vCPU waits for a host CPU.",
        description: "The vCPU of @who that waits most was runnable without running for \
                      {{ $value | humanizePercentage }} of the time, throttling excluded.",
        check: Some("vcpu_starved"),
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
                      halt polling.",
        check: None,
    },
    Alert {
        name: "VirtlensDefaultVCPUsWithCPULimit",
        severity: Info,
        query: "max by (@vm) (virtlens_finding{check=\"default_vcpus_with_limit\"}) == 1",
        hold: "15m",
        keep: None,
        summary: "A Kata VM has both default_vcpus and a CPU limit.",
        description: "@who boots with more than one vCPU and has a CPU limit: all its vCPUs \
                      share the limit.",
        check: None,
    },
    // A split last-level cache costs little, so it is only on the dashboard.
    Alert {
        name: "VirtlensTopologyMismatch",
        severity: Info,
        query: "max by (@vm, kind) (virtlens_misplaced_vcpus{kind!=\"llc_split\"}) > 0",
        hold: "10m",
        keep: None,
        summary: "The placement of vCPUs does not match the guest topology.",
        description: "{{ $labels.kind }} affects {{ $value }} vCPUs of @who.",
        check: None,
    },
];

/// Alerts about memory of VMs.
pub const MEMORY_ALERTS: &[Alert] = &[
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
        summary: "Free page reporting is enabled, but released no memory for 6 hours.",
        description: "@who holds {{ $value | humanizePercentage }} of its memory, and its guest \
                      reported none of it as free.",
        check: None,
    },
    Alert {
        name: "VirtlensMemoryRefaultHigh",
        severity: Info,
        query: "60 * vm:virtlens_memory_refault:ratio_rate5m > 0.20",
        hold: "15m",
        keep: None,
        summary: "A guest reports memory as free and faults it in again all the time.",
        description: "@who faults in {{ $value | humanizePercentage }} of its memory again per \
                      minute.",
        check: None,
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
        summary: "A balloon inflates and deflates repeatedly.",
        description: "The balloon of @who took {{ $value | humanizePercentage }} of its memory \
                      in 15 minutes, and returned more than 25%.",
        check: None,
    },
    // A guest that has touched its whole RAM stays near the limit for good, so the room must be
    // small and shrinking. Compares resident memory, which cannot be reclaimed; the usage of the
    // cgroup may be page cache. Huge pages have a separate limit.
    Alert {
        name: "VirtlensMemoryNearLimit",
        severity: Warning,
        query: "vm:virtlens_memory_headroom_bytes:min < 64 * 2^20\n\
                and on (@vm)\n\
                predict_linear(vm:virtlens_memory_headroom_bytes:min[30m], 3600) < 0",
        hold: "15m",
        keep: None,
        summary: "A VM approaches its memory limit.",
        description: "The memory limit of the cgroup of @who leaves \
                      {{ $value | humanize1024 }}B, and at the present growth less than an hour; \
                      above the limit the kernel kills a process of the pod (OOM).",
        check: None,
    },
    Alert {
        name: "VirtlensMemoryOOMKilled",
        severity: Warning,
        query: "sum by (@vm) (increase(virtlens_memory_oom_kills_total[15m])) > 0",
        hold: "0m",
        keep: Some("15m"),
        summary: "The kernel killed a process of a VM's pod for lack of memory.",
        description: "In the last 15 minutes the kernel killed {{ $value | humanize }} processes in \
                      the cgroup of @who because its memory limit was reached.",
        check: None,
    },
];

/// Alerts about nodes and agents.
pub const AGENT_ALERTS: &[Alert] = &[
    // One alert for a crowded node, which inhibits those of its VMs.
    Alert {
        name: "VirtlensNodeContended",
        severity: Warning,
        query: "count by (cluster, instance) (\n  \
                  vm:virtlens_vcpu_steal:max_rate5m > 0.10\n  \
                  or on (@vm)\n  \
                  vm_check:virtlens_finding:share_5m{check=\"vcpu_starved\"} > 0.90\n\
                )\n\
                / count by (cluster, instance) (virtlens_vm_info) > 0.25\n\
                and on (cluster, instance)\n\
                count by (cluster, instance) (virtlens_vm_info) >= 4",
        hold: "15m",
        keep: Some("5m"),
        summary: "The vCPUs of many VMs of a node wait for CPUs.",
        description: "In {{ $value | humanizePercentage }} of the VMs on {{ $labels.instance }} a \
                      vCPU was runnable without running for more than 10% of the time, throttling \
                      excluded.",
        check: None,
    },
    Alert {
        name: "VirtlensNodeWithoutAgent",
        severity: Warning,
        query: "count by (cluster, node) (\n  \
                  (\n    \
                    kube_pod_info{pod=~\"virt-launcher-.*\"}\n    \
                    or\n    \
                    kube_pod_info * on (namespace, pod) group_left ()\n    \
                    kube_pod_runtimeclass_name_info{runtimeclass_name=~\"kata.*\"}\n  \
                  )\n  \
                  * on (namespace, pod) group_left ()\n  \
                  (kube_pod_status_phase{phase=\"Running\"} == 1)\n\
                )\n\
                unless on (node)\n\
                label_replace(up{job=~\".*virtlens.*\"} == 1, \"node\", \"$1\", \"instance\", \"(.+)\")",
        hold: "15m",
        keep: None,
        summary: "A node with VMs has no agent that answers.",
        description: "{{ $labels.node }} runs {{ $value }} pods of Kata or KubeVirt, and no agent \
                      answers there, so there are no data of their VMs.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentsAbsent",
        severity: Warning,
        query: "absent(up{job=~\".*virtlens.*\"})",
        hold: "15m",
        keep: None,
        summary: "Prometheus scrapes no agent.",
        description: "No target has a job whose name contains virtlens, so there are no data of VMs \
                      and no other alert about them.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentDown",
        severity: Warning,
        query: "up{job=~\".*virtlens.*\"} == 0",
        hold: "10m",
        keep: None,
        summary: "The agent of a node cannot be scraped.",
        description: "{{ $labels.instance }} did not answer, so there are no data of its VMs.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentBlind",
        severity: Warning,
        query: "max by (cluster, instance) (virtlens_source_up{source=~\"task_pass|proc\"}) == 0",
        hold: "10m",
        keep: None,
        summary: "The agent of a node answers, but cannot read the node's VMs.",
        description: "On {{ $labels.instance }} neither BPF nor /proc can be read; virtlens \
                      check shows the reason.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentSourceDown",
        severity: Info,
        query: "min by (cluster, instance, source) (virtlens_source_up) == 0",
        hold: "15m",
        keep: None,
        summary: "A source of a node's agent is down.",
        description: "{{ $labels.source }} is off on {{ $labels.instance }}; virtlens check \
                      shows the reason and what is lost.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentDropping",
        severity: Warning,
        // Unavailable names do not affect any number: VirtlensMetadataStale covers them.
        query: "sum by (cluster, instance, reason) (rate(virtlens_dropped_total{reason!=\"pods_unread\"}[5m])) > 0",
        hold: "15m",
        keep: None,
        summary: "The agent of a node loses data.",
        description: "{{ $labels.instance }} loses {{ printf \"%.2g\" $value }} items per second \
                      with the reason {{ $labels.reason }}: its values may be too low.",
        check: None,
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
                      {{ $value | humanizePercentage }} full; entries that do not fit will be \
                      dropped.",
        check: None,
    },
    Alert {
        name: "VirtlensMetadataStale",
        severity: Warning,
        query: "max by (cluster, instance, source) (virtlens_metadata_age_seconds) > 300",
        hold: "10m",
        keep: None,
        summary: "The agent of a node has outdated pod names.",
        description: "{{ $labels.source }} last answered {{ $labels.instance }} \
                      {{ $value | humanizeDuration }} ago. Newer pods have no names.",
        check: None,
    },
    Alert {
        name: "VirtlensAgentCPUHigh",
        severity: Info,
        query: "sum by (cluster, instance) (rate(process_cpu_seconds_total{job=~\".*virtlens.*\"}[5m])) > 0.05",
        hold: "30m",
        keep: None,
        summary: "The agent of a node uses too much CPU.",
        description: "The agent on {{ $labels.instance }} uses {{ $value | humanizePercentage }} \
                      of a core.",
        check: None,
    },
];

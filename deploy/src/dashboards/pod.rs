//! One pod, which is one VM: the dashboard that alerts link to. It opens with two screens;
//! the other rows are closed. Its charts group by the name of the VM,
//! which a live migration of `KubeVirt` keeps, while pod and node change.

use crate::dashboard::Unit::{Bytes, BytesPerSecond, Cores, Count, PerSecond, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const POD: Dashboard = Dashboard {
    name: "pod",
    title: "Pod",
    description: "One VM in detail: CPU by role, throttling, waiting, placement and memory.",
    of: Of::Vm,
    rows: &[
        FINDINGS,
        CPU,
        PLACEMENT,
        MORE_THROTTLING,
        MORE_CPU,
        MORE_PLACEMENT,
        MORE_MEMORY,
        IDENTITY,
    ],
};

const FINDINGS: Row = Row {
    title: "Findings",
    is_open: true,
    panels: &[Panel::table(
        "Findings",
        Count,
        "Checks that the VM fails at present; virtlens doctor shows evidence and remedy.",
        &[target(
            "max by (@vm, check, severity) (virtlens_finding{@sel})",
            "Found",
        )],
    )],
};

const CPU: Row = Row {
    title: "CPU",
    is_open: true,
    panels: &[
        Panel::stacked(
            "Cores by role",
            Cores,
            "Host CPU time by role; time without a role is other.",
            &[target(
                "sum by (role) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval]))",
                "{{role}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Limit and usage",
            Cores,
            "Each CPU limit, and the CPU time of the threads under it.",
            &[
                target(
                    "sum by (vm, scope) (rate(virtlens_cfs_quota_used_seconds_total{@sel}[$__rate_interval]))",
                    "{{vm}} {{scope}} used",
                ),
                target("max by (vm, scope) (virtlens_cfs_quota_cores{@sel})", "{{vm}} {{scope}} limit"),
            ],
        )
        .width(8),
        Panel::lines(
            "Throttled",
            Share,
            "Share of time in which a limit throttled threads, over 5 minutes: wall time, or the kernel's sum over CPUs (at most 100 %) without it.",
            &[target(
                "max by (vm, scope) (vm_scope:virtlens_throttled:ratio_rate5m{@sel})",
                "{{vm}} {{scope}}",
            )],
        )
        .limit(0.25)
        .width(8),
        Panel::lines(
            "vCPUs",
            Cores,
            "Host CPU time of each vCPU.",
            &[target(
                "sum by (vm, vcpu) (rate(virtlens_vcpu_cpu_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} vCPU {{vcpu}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Waiting vCPUs",
            Share,
            "Share of time in which each vCPU was runnable but did not run, which the guest sees as steal.",
            &[target(
                "sum by (vm, vcpu) (rate(virtlens_vcpu_wait_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} vCPU {{vcpu}}",
            )],
        )
        .limit(0.10)
        .width(8),
        Panel::lines(
            "Workers",
            Cores,
            "CPU time of each vhost worker, iothread and virtiofsd thread; one thread can use at most one core.",
            &[target(
                "sum by (vm, role, worker) (rate(virtlens_worker_cpu_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} {{role}} {{worker}}",
            )],
        )
        .limit(0.85)
        .width(8),
    ],
};

const PLACEMENT: Row = Row {
    title: "Placement and memory",
    is_open: true,
    panels: &[
        Panel::lines(
            "Mismatches",
            Count,
            "vCPUs affected by a mismatch of guest and host topology, by kind.",
            &[target(
                "sum by (vm, kind) (virtlens_misplaced_vcpus{@sel})",
                "{{vm}} {{kind}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Memory",
            Bytes,
            "Guest memory, resident memory, its peak, and usage and limit of the cgroup.",
            &[
                target(
                    "sum by (vm) (virtlens_memory_guest_bytes{@sel})",
                    "{{vm}} guest",
                ),
                target(
                    "sum by (vm) (virtlens_memory_resident_bytes{@sel})",
                    "{{vm}} resident",
                ),
                target(
                    "sum by (vm) (virtlens_memory_resident_peak_bytes{@sel})",
                    "{{vm}} peak",
                ),
                target(
                    "sum by (vm) (virtlens_memory_cgroup_bytes{@sel})",
                    "{{vm}} cgroup",
                ),
                target(
                    "sum by (vm) (virtlens_memory_cgroup_limit_bytes{@sel})",
                    "{{vm}} limit",
                ),
            ],
        )
        .width(8),
        Panel::lines(
            "Released and refaulted",
            BytesPerSecond,
            "Memory that the guest reported as free, that its balloon took, and refaults.",
            &[
                target(
                    "sum(rate(virtlens_free_page_reported_bytes_total{@sel}[$__rate_interval]))",
                    "reported",
                ),
                target(
                    "sum by (operation) (rate(virtlens_balloon_bytes_total{@sel}[$__rate_interval]))",
                    "balloon {{operation}}",
                ),
                target(
                    "sum(rate(virtlens_memory_refault_bytes_total{@sel}[$__rate_interval]))",
                    "refaulted",
                ),
            ],
        )
        .width(8),
    ],
};

const MORE_THROTTLING: Row = Row {
    title: "More of throttling",
    is_open: false,
    panels: &[
        Panel::stacked(
            "Limit usage by role",
            Share,
            "Share of each role in the usage of the limit, over 5 minutes.",
            &[target(
                "max by (vm, scope, role) (vm_scope_role:virtlens_quota_used:share_rate5m{@sel})",
                "{{vm}} {{scope}} {{role}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Role running at throttling",
            PerSecond,
            "How often a thread of the role was running on a CPU when a limit ran out there.",
            &[target(
                "sum by (role) (rate(virtlens_throttle_hits_total{@sel}[$__rate_interval]))",
                "{{role}}",
            )],
        )
        .width(8),
        Panel::heatmap(
            "Throttling durations",
            Seconds,
            "Throttlings of single run queues, by duration.",
            &[target(
                "sum by (le) (increase(virtlens_throttle_duration_seconds_bucket{@sel}[$__rate_interval]))",
                "{{le}}",
            )],
        )
        .width(8),
    ],
};

const MORE_CPU: Row = Row {
    title: "More of CPU",
    is_open: false,
    panels: &[
        Panel::lines(
            "Waiting threads",
            Cores,
            "Runnable threads that did not run, by role: waiting for a CPU, or throttled.",
            &[target(
                "sum by (role) (rate(virtlens_cpu_wait_seconds_total{@sel}[$__rate_interval]))",
                "{{role}}",
            )],
        )
        .width(12),
        Panel::lines(
            "Halt polling",
            Cores,
            "CPU time of idle vCPUs polling for a wake-up that came (success) or did not come (fail).",
            &[target(
                "sum by (result) (rate(virtlens_halt_poll_seconds_total{@sel}[$__rate_interval]))",
                "{{result}}",
            )],
        )
        .width(12),
        Panel::lines(
            "Guest mode",
            Share,
            "Share of the vCPUs' CPU time in guest mode; an estimate, because most kernels sample it.",
            &[target(
                "sum by (vm) (rate(virtlens_guest_seconds_total{@sel}[$__rate_interval]))\n\
                 / (sum by (vm) (rate(virtlens_cpu_seconds_total{@sel, role=\"vcpu\"}[$__rate_interval])) > 0)",
                "{{vm}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Exits",
            PerSecond,
            "VM exits by kind, as KVM counts them.",
            &[target(
                "sum by (kind) (rate(virtlens_kvm_exits_total{@sel}[$__rate_interval]))",
                "{{kind}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Threads",
            Count,
            "Living threads by role.",
            &[target("sum by (role) (virtlens_threads{@sel})", "{{role}}")],
        )
        .width(8),
    ],
};

const MORE_PLACEMENT: Row = Row {
    title: "More of placement",
    is_open: false,
    panels: &[
        Panel::lines(
            "vCPUs and pinned vCPUs",
            Count,
            "vCPUs of the VM, and those whose affinity allows only one pCPU or core.",
            &[
                target("sum by (vm) (virtlens_vcpus_online{@sel})", "{{vm}} online"),
                target("sum by (vm) (virtlens_vcpus_pinned{@sel})", "{{vm}} pinned"),
            ],
        )
        .width(8),
        Panel::lines(
            "vCPU pairs",
            Count,
            "Guest siblings on one host core (aligned) or on several (split), and vCPUs of different guest cores on one host core (shared).",
            &[target(
                "sum by (vm, state) (virtlens_topology_pairs{@sel})",
                "{{vm}} {{state}}",
            )],
        )
        .width(8),
        Panel::lines(
            "Migrations",
            PerSecond,
            "Migrations of vCPUs between pCPUs, by distance.",
            &[target(
                "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                "{{distance}}",
            )],
        )
        .width(8),
    ],
};

const MORE_MEMORY: Row = Row {
    title: "More of memory",
    is_open: false,
    panels: &[
        Panel::lines(
            "Release calls",
            PerSecond,
            "Ranges that the guest reported as free, and system calls of the VMM for its balloon.",
            &[
                target(
                    "sum(rate(virtlens_free_page_reports_total{@sel}[$__rate_interval]))",
                    "reports",
                ),
                target(
                    "sum by (operation) (rate(virtlens_balloon_events_total{@sel}[$__rate_interval]))",
                    "balloon {{operation}}",
                ),
            ],
        )
        .width(12),
        Panel::lines(
            "Page faults",
            PerSecond,
            "Page faults of the guest: first and repeated accesses to memory.",
            &[target(
                "sum by (vm) (rate(virtlens_memory_faults_total{@sel}[$__rate_interval]))",
                "{{vm}}",
            )],
        )
        .width(12),
    ],
};

const IDENTITY: Row = Row {
    title: "Identity",
    is_open: false,
    panels: &[Panel::table(
        "VM",
        Count,
        "Identity of the VM: uid of its pod, VMM, runtime and cgroup layout.",
        &[target(
            "max by (@vm, uid, vmm, runtime, cgroup_layout, runtime_class, vmi) (virtlens_vm_info{@sel})",
            "Is",
        )],
    )],
};

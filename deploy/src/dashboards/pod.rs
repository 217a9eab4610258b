//! One pod, which is one VM: the dashboard that alerts link to.

use crate::dashboard::Unit::{Bytes, BytesPerSecond, Cores, Count, PerSecond, Seconds, Share};
use crate::dashboard::{Dashboard, Of, Panel, Row, target};

pub(super) const POD: Dashboard = Dashboard {
    name: "pod",
    title: "Pod",
    description: "One VM in depth: who uses its CPU, what holds it up, where it sits, what it holds.",
    of: Of::Vms,
    rows: &[CPU, THROTTLING, WAITING, PLACEMENT, MEMORY, FACTS],
};

const CPU: Row = Row {
    title: "Who uses the CPU",
    panels: &[
        Panel::stacked(
            "Cores by role",
            Cores,
            "Host CPU time by what the threads do; what has no role is other.",
            &[
                target(
                    "sum by (role) (rate(virtlens_cpu_seconds_total{@sel}[$__rate_interval]))",
                    "{{role}}",
                ),
                target(
                    "sum(rate(virtlens_unattributed_cpu_seconds_total{@sel}[$__rate_interval]))",
                    "other",
                ),
            ],
        ),
        Panel::lines(
            "Workers",
            Cores,
            "Each vhost worker, iothread and virtiofsd thread: one thread ends at one core.",
            &[target(
                "sum by (vm, role, worker) (rate(virtlens_worker_cpu_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} {{role}} {{worker}}",
            )],
        )
        .limit(0.85),
        Panel::lines(
            "vCPUs",
            Cores,
            "Host CPU time of each vCPU.",
            &[target(
                "sum by (vm, vcpu) (rate(virtlens_vcpu_cpu_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} vCPU {{vcpu}}",
            )],
        ),
        Panel::lines(
            "Threads",
            Count,
            "Living threads by role.",
            &[target("sum by (role) (virtlens_threads{@sel})", "{{role}}")],
        ),
    ],
};

const THROTTLING: Row = Row {
    title: "Throttling",
    panels: &[
        Panel::lines(
            "Limit and use",
            Cores,
            "Each CPU limit, and what the threads under it use.",
            &[
                target(
                    "sum by (vm, scope) (rate(virtlens_cfs_quota_used_seconds_total{@sel}[$__rate_interval]))",
                    "{{vm}} {{scope}} used",
                ),
                target("max by (vm, scope) (virtlens_cfs_quota_cores{@sel})", "{{vm}} {{scope}} limit"),
            ],
        ),
        Panel::lines(
            "Stood still",
            Share,
            "Share of the time that a limit held up threads over 5 minutes: by the clock, or at most, where only the kernel's counters tell.",
            &[target(
                "vm_scope:virtlens_throttled:ratio_rate5m{@sel}",
                "{{vm}} {{scope}}",
            )],
        )
        .limit(0.25),
        Panel::stacked(
            "Who ate the limit",
            Share,
            "The share of each role in what was used of the limit over 5 minutes.",
            &[target(
                "vm_scope_role:virtlens_quota_used:share_rate5m{@sel}",
                "{{vm}} {{scope}} {{role}}",
            )],
        ),
        Panel::lines(
            "Who ran when it was used up",
            PerSecond,
            "How often a thread of the role ran as a limit ran out on its CPU.",
            &[target(
                "sum by (role) (rate(virtlens_throttle_hits_total{@sel}[$__rate_interval]))",
                "{{role}}",
            )],
        ),
        Panel::heatmap(
            "How long each throttling lasts",
            Seconds,
            "Throttlings by how long the run queue of one CPU stood.",
            &[target(
                "sum by (le) (increase(virtlens_throttle_duration_seconds_bucket{@sel}[$__rate_interval]))",
                "{{le}}",
            )],
        ),
    ],
};

const WAITING: Row = Row {
    title: "Waiting",
    panels: &[
        Panel::lines(
            "Threads that wait",
            Cores,
            "Threads by role that could run but did not: waiting for a CPU, or throttled.",
            &[target(
                "sum by (role) (rate(virtlens_cpu_wait_seconds_total{@sel}[$__rate_interval]))",
                "{{role}}",
            )],
        ),
        Panel::lines(
            "vCPUs that wait",
            Share,
            "The share of the time that each vCPU could run but did not, which its guest sees as steal.",
            &[target(
                "sum by (vm, vcpu) (rate(virtlens_vcpu_wait_seconds_total{@sel}[$__rate_interval]))",
                "{{vm}} vCPU {{vcpu}}",
            )],
        )
        .limit(0.10),
        Panel::lines(
            "Halt polling",
            Cores,
            "CPU time of idle vCPUs that polled for a wake-up which came (success) or did not (fail).",
            &[target(
                "sum by (result) (rate(virtlens_halt_poll_seconds_total{@sel}[$__rate_interval]))",
                "{{result}}",
            )],
        ),
        Panel::lines(
            "In the guest",
            Share,
            "The share of the vCPUs' CPU time in guest mode; an estimate, since most kernels sample it.",
            &[target(
                "sum by (vm) (rate(virtlens_guest_seconds_total{@sel}[$__rate_interval]))\n\
                 / (sum by (vm) (rate(virtlens_cpu_seconds_total{@sel, role=\"vcpu\"}[$__rate_interval])) > 0)",
                "{{vm}}",
            )],
        ),
        Panel::lines(
            "Exits",
            PerSecond,
            "Exits from the guest by kind, as KVM counts them.",
            &[target(
                "sum by (kind) (rate(virtlens_kvm_exits_total{@sel}[$__rate_interval]))",
                "{{kind}}",
            )],
        ),
    ],
};

const PLACEMENT: Row = Row {
    title: "Placement",
    panels: &[
        Panel::lines(
            "vCPUs, and pinned ones",
            Count,
            "vCPUs that KVM holds, and those that may run on one CPU or core only.",
            &[
                target(
                    "sum by (vm, kind) (virtlens_vcpus{@sel})",
                    "{{vm}} {{kind}}",
                ),
                target("sum by (vm) (virtlens_vcpus_pinned{@sel})", "{{vm}} pinned"),
            ],
        ),
        Panel::lines(
            "Mismatches",
            Count,
            "vCPUs that suffer from a mismatch of guest and host topology, by kind.",
            &[target(
                "sum by (vm, kind) (virtlens_topology_mismatch{@sel})",
                "{{vm}} {{kind}}",
            )],
        ),
        Panel::lines(
            "Pairs of vCPUs",
            Count,
            "Guest siblings on one core of the host (aligned) or on several (split), and strangers on one (shared).",
            &[target(
                "sum by (vm, state) (virtlens_topology_pairs{@sel})",
                "{{vm}} {{state}}",
            )],
        ),
        Panel::lines(
            "Moves",
            PerSecond,
            "How often vCPUs moved to another CPU of the host, by distance.",
            &[target(
                "sum by (distance) (rate(virtlens_vcpu_migrations_total{@sel}[$__rate_interval]))",
                "{{distance}}",
            )],
        ),
    ],
};

const MEMORY: Row = Row {
    title: "Memory",
    panels: &[
        Panel::lines(
            "Held",
            Bytes,
            "What the guest was given, what is resident, its peak, and the limit of its cgroup.",
            &[
                target(
                    "sum by (vm) (virtlens_memory_guest_bytes{@sel})",
                    "{{vm}} given",
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
        ),
        Panel::lines(
            "Given back and taken again",
            BytesPerSecond,
            "Memory that the guest reported free, that its balloon took, and that it took again.",
            &[
                target(
                    "sum(rate(virtlens_free_page_reported_bytes_total{@sel}[$__rate_interval]))",
                    "reported free",
                ),
                target(
                    "sum by (operation) (rate(virtlens_balloon_bytes_total{@sel}[$__rate_interval]))",
                    "balloon {{operation}}",
                ),
                target(
                    "sum(rate(virtlens_memory_refault_bytes_total{@sel}[$__rate_interval]))",
                    "taken again",
                ),
            ],
        ),
        Panel::lines(
            "Calls that give back",
            PerSecond,
            "Ranges that the guest reported free, and calls of the VMM for its balloon.",
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
        ),
        Panel::lines(
            "Page faults",
            PerSecond,
            "Memory that the guest touches for the first time, or again.",
            &[target(
                "sum by (vm) (rate(virtlens_memory_faults_total{@sel}[$__rate_interval]))",
                "{{vm}}",
            )],
        ),
    ],
};

const FACTS: Row = Row {
    title: "Facts",
    panels: &[
        Panel::table(
            "The VM",
            Count,
            "What it is: the uid of its pod, its VMM, who runs it, how its threads lie in cgroups.",
            &[target(
                "max by (@vm, uid, vmm, runtime, cgroup_layout, runtime_class, vmi) (virtlens_vm_info{@sel})",
                "Is",
            )],
        ),
        Panel::table(
            "Findings",
            Count,
            "Every check that it fails now; virtlens doctor tells evidence and remedy.",
            &[target(
                "max by (@vm, check, severity) (virtlens_finding{@sel})",
                "Found",
            )],
        ),
    ],
};

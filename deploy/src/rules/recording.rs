//! Values that are computed once, for alerts and dashboards. Prometheus evaluates groups at the
//! same time, and the rules of a group in order: a rule comes after those of its group that it
//! uses, and uses none of another group.

use super::Recording;

/// All recording rules, by group.
pub const GROUPS: &[(&str, &[Recording])] = &[
    ("virtlens.cpu", CPU),
    ("virtlens.threads", THREADS),
    ("virtlens.throttling", THROTTLING),
    ("virtlens.quota", QUOTA),
    ("virtlens.memory", MEMORY),
    ("virtlens.findings", FINDINGS),
];

const CPU: &[Recording] = &[
    Recording {
        name: "vm_role:virtlens_cpu_seconds:rate5m",
        query: "sum by (@vm, role) (rate(virtlens_cpu_seconds_total[5m]))",
    },
    Recording {
        name: "vm:virtlens_cpu_seconds:rate5m",
        query: "sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m)",
    },
    // For views of many nodes: its number of series depends on the namespaces of a node.
    Recording {
        name: "namespace_role:virtlens_cpu_seconds:rate5m",
        query: "sum by (cluster, instance, @namespace, role) (vm_role:virtlens_cpu_seconds:rate5m)",
    },
    // Share of CPU time outside the vCPUs.
    Recording {
        name: "vm:virtlens_cpu_overhead:ratio_rate5m",
        query: "1 - sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"})\n\
                / (vm:virtlens_cpu_seconds:rate5m > 0)",
    },
    Recording {
        name: "vm:virtlens_halt_poll:ratio_rate5m",
        query: "sum by (@vm) (rate(virtlens_halt_poll_seconds_total[5m]))\n\
                / (sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"}) > 0)",
    },
    // Polling does not count as work if it is known; an unplugged vCPU cannot run.
    Recording {
        name: "vm:virtlens_vcpus_busy:ratio_rate5m",
        query: "(\n  \
                  sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"})\n  \
                  - (\n    \
                    vm:virtlens_halt_poll:ratio_rate5m\n    \
                    * sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"})\n    \
                    or 0 * sum by (@vm) (vm_role:virtlens_cpu_seconds:rate5m{role=\"vcpu\"})\n  \
                  )\n\
                )\n\
                / (\n  \
                  (\n    \
                    max by (@vm) (virtlens_vcpus_online)\n    \
                    - (max by (@vm) (virtlens_vcpus_parked)\n    \
                    or 0 * max by (@vm) (virtlens_vcpus_online))\n  \
                  ) > 0\n\
                )",
    },
];

/// Apart from the rules of CPU time, which use each other, so that Prometheus evaluates both
/// groups at the same time.
const THREADS: &[Recording] = &[
    Recording {
        name: "vm_role:virtlens_cpu_wait_seconds:rate5m",
        query: "sum by (@vm, role) (rate(virtlens_cpu_wait_seconds_total[5m]))",
    },
    Recording {
        name: "vm_role_worker:virtlens_worker_cpu_seconds:rate5m",
        query: "sum by (@vm, role, worker) (rate(virtlens_worker_cpu_seconds_total[5m]))",
    },
];

const THROTTLING: &[Recording] = &[
    // Wall time if it is available. Otherwise the kernel's count, summed over CPUs, which
    // is an upper bound of the wall time.
    Recording {
        name: "vm_scope:virtlens_throttled:ratio_rate5m",
        query: "max by (@vm, scope) (rate(virtlens_throttled_wall_seconds_total[5m]))\n\
                or\n\
                clamp_max(max by (@vm, scope) (rate(virtlens_cfs_throttled_seconds_total[5m])), 1)",
    },
    // The level that throttles the VM most. Scopes are nested, so their sum would count the time
    // of an inner level twice.
    Recording {
        name: "vm:virtlens_throttled:max_rate5m",
        query: "max by (@vm) (vm_scope:virtlens_throttled:ratio_rate5m)",
    },
    // One vCPU is throttled at most for the part of each period that remains after the
    // quota.
    Recording {
        name: "vm_scope:virtlens_throttled_periods:ratio_rate5m",
        query: "max by (@vm, scope) (rate(virtlens_cfs_throttled_periods_total[5m]))\n\
                / (max by (@vm, scope) (rate(virtlens_cfs_periods_total[5m])) > 0)",
    },
    // Wait ratio of the vCPU that waits most. Wait time includes throttling, which is
    // subtracted; the overhead cgroup has no vCPUs.
    Recording {
        name: "vm:virtlens_vcpu_steal:max_rate5m",
        query: "clamp_min(\n  \
                  max by (@vm) (rate(virtlens_vcpu_wait_seconds_total[5m]))\n  \
                  - (\n    \
                    sum by (@vm) (vm_scope:virtlens_throttled:ratio_rate5m{scope!=\"overhead\"})\n    \
                    or 0 * max by (@vm) (rate(virtlens_vcpu_wait_seconds_total[5m]))\n  \
                  ),\n  \
                  0\n\
                )",
    },
];

/// Apart from throttling, because neither uses the other.
const QUOTA: &[Recording] = &[
    Recording {
        name: "vm_scope_role:virtlens_cfs_quota_used_seconds:rate5m",
        query: "sum by (@vm, scope, role) (rate(virtlens_cfs_quota_used_seconds_total[5m]))",
    },
    Recording {
        name: "vm_scope:virtlens_quota_used:ratio_rate5m",
        query: "sum by (@vm, scope) (vm_scope_role:virtlens_cfs_quota_used_seconds:rate5m)\n\
                / max by (@vm, scope) (virtlens_cfs_quota_cores)",
    },
    // Consumers of the quota.
    Recording {
        name: "vm_scope_role:virtlens_quota_used:share_rate5m",
        query: "vm_scope_role:virtlens_cfs_quota_used_seconds:rate5m\n\
                / on (@vm, scope) group_left ()\n\
                (sum by (@vm, scope) (vm_scope_role:virtlens_cfs_quota_used_seconds:rate5m) > 0)",
    },
];

const MEMORY: &[Recording] = &[
    // Memory that the limit leaves to the VMM.
    Recording {
        name: "vm:virtlens_memory_headroom_bytes:min",
        query: "min by (@vm) (virtlens_memory_cgroup_limit_bytes)\n\
                - (\n  \
                  max by (@vm) (virtlens_memory_resident_bytes)\n  \
                  - (\n    \
                    max by (@vm) (virtlens_memory_resident_huge_bytes)\n    \
                    or 0 * max by (@vm) (virtlens_memory_resident_bytes)\n  \
                  )\n\
                )",
    },
    // Share of its RAM that a guest refaults per second.
    Recording {
        name: "vm:virtlens_memory_refault:ratio_rate5m",
        query: "sum by (@vm) (rate(virtlens_memory_refault_bytes_total[5m]))\n\
                / (max by (@vm) (virtlens_memory_guest_bytes) > 0)",
    },
];

const FINDINGS: &[Recording] = &[
    // Share of the last scrapes in which a VM failed a check.
    Recording {
        name: "vm_check:virtlens_finding:share_5m",
        query: "sum by (@vm, check) (count_over_time(virtlens_finding[5m]))\n\
                / on (@vm) group_left ()\n\
                max by (@vm) (count_over_time(virtlens_vm_info[5m]))",
    },
];

//! The table of checks: severity, rule, remedy and next step.

use serde::{Serialize, Serializer};

use crate::vocab::MismatchKind;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Costs the VM time or throughput now.
    Warning,
    /// Worth knowing: waste, or a trap.
    Info,
}

impl Severity {
    /// Name in labels and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// A check: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// A CPU limit caps the VM.
    QuotaCapped,
    /// A CPU limit of the pod applies to no thread of its VM.
    LimitWithoutVm,
    /// I/O threads are throttled by a limit.
    IoThrottled,
    /// A vhost worker saturates its core.
    VhostSaturated,
    /// A virtiofsd thread saturates its core.
    VirtiofsdSaturated,
    /// An iothread saturates its core.
    IothreadSaturated,
    /// All vCPUs are busy.
    VcpusSaturated,
    /// A vCPU waits for a CPU.
    VcpuStarved,
    /// vCPUs poll instead of sleeping.
    HaltPollSpin,
    /// Most CPU time is spent outside the vCPUs.
    OverheadHigh,
    /// The VM has more vCPUs than its limit can run.
    VcpusExceedQuota,
    /// `default_vcpus` and a CPU limit add up.
    DefaultVcpusWithLimit,
    /// A placement problem on the host's CPUs.
    Place(MismatchKind),
    /// Threads use CPU time outside the pod's cgroup.
    ThreadsOutsidePod,
    /// The guest repeatedly reuses reported memory.
    ReportingChurn,
    /// An idle VM holds memory that it cannot give back.
    MemoryKept,
    /// A thread pool performs I/O.
    ThreadPoolIo,
}

/// Description of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Name in labels, JSON and the configuration.
    pub name: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// When the check is raised; thresholds appear by name, in braces.
    pub rule: &'static str,
    /// The remedy for an unknown VM. If the remedy depends on the runtime, the cgroup
    /// driver or the cgroup version, the finding carries a more specific one.
    pub remedy: &'static str,
    /// The next step of a diagnosis.
    pub next: &'static str,
}

const WARNING: Severity = Severity::Warning;
const INFO: Severity = Severity::Info;

/// The next step for placement problems.
const PICTURE: &str = "virtlens topology VM: the host's CPUs with the vCPUs on them";

impl Check {
    /// All checks, those that explain most first.
    pub const ALL: [Self; 23] = [
        Self::QuotaCapped,
        Self::LimitWithoutVm,
        Self::IoThrottled,
        Self::VhostSaturated,
        Self::VirtiofsdSaturated,
        Self::IothreadSaturated,
        Self::VcpusSaturated,
        Self::VcpuStarved,
        Self::Place(MismatchKind::SmtSplit),
        Self::Place(MismatchKind::SmtShared),
        Self::Place(MismatchKind::VcpuOverlap),
        Self::Place(MismatchKind::NumaSplit),
        Self::Place(MismatchKind::LlcSplit),
        Self::Place(MismatchKind::HelperOnVcpu),
        Self::Place(MismatchKind::RemoteMemory),
        Self::HaltPollSpin,
        Self::OverheadHigh,
        Self::VcpusExceedQuota,
        Self::DefaultVcpusWithLimit,
        Self::ThreadsOutsidePod,
        Self::ReportingChurn,
        Self::MemoryKept,
        Self::ThreadPoolIo,
    ];

    /// Name of the check.
    pub const fn name(self) -> &'static str {
        self.about().name
    }

    /// Description of the check.
    #[expect(clippy::too_many_lines, reason = "a table")]
    pub const fn about(self) -> About {
        match self {
            Self::QuotaCapped => About {
                name: "quota_capped",
                severity: WARNING,
                rule: "at least {quota_used} of a CPU limit is used, and it throttles in at least {quota_throttled} of its periods or of the time (an upper bound of the time where only the kernel's counters are known)",
                remedy: "raise the limit: resources.limits.cpu of the pod; overhead.podFixed.cpu of the RuntimeClass, which kubelet adds to it, if vhost and virtiofsd use the limit; virsh schedinfo for libvirt",
                next: "virtlens trace VM: which thread ran when the quota ran out, and how long each thread was throttled; virtlens_throttle_duration_seconds: durations of throttling",
            },
            Self::LimitWithoutVm => About {
                name: "limit_without_vm",
                severity: WARNING,
                rule: "the pod has a CPU limit, and all threads of its VM are outside of the cgroup that has the limit: with the systemd cgroup driver and sandbox_cgroup_only=false, Kata's Go runtime creates a top-level cgroup with the name of a systemd unit instead",
                remedy: "set sandbox_cgroup_only=true in Kata's configuration.toml, and create the pod again",
                next: "virtlens snapshot -o json: cgroup, unapplied_limit. The pod can exceed its limit, and kubelet's CPU metrics do not include its VM",
            },
            Self::IoThrottled => About {
                name: "io_throttled",
                severity: WARNING,
                rule: "the threads of vhost, of virtiofsd or the iothreads were together runnable without running for at least {io_throttled} of the time, under a limit that throttles as long",
                remedy: "raise the limit: overhead.podFixed.cpu of the RuntimeClass or resources.limits.cpu of the pod; virsh schedinfo with emulator_quota or iothread_quota for libvirt",
                next: "virtlens trace VM: when each worker was throttled. Guest I/O takes up to one period (100 ms) longer",
            },
            Self::VhostSaturated => About {
                name: "vhost_saturated",
                severity: WARNING,
                rule: "a vhost worker uses at least {vhost_busy}; it is one thread, so it cannot use more than one core",
                remedy: "add queues: Kata creates one vhost worker per vCPU at boot (default_vcpus); KubeVirt: networkInterfaceMultiqueue: true; libvirt: <driver name='vhost' queues='N'/>; or pass a device through (SR-IOV)",
                next: "the peer of the connection, which may be the slower end",
            },
            Self::VirtiofsdSaturated => About {
                name: "virtiofsd_saturated",
                severity: WARNING,
                rule: "a thread of virtiofsd uses at least {virtiofsd_busy}",
                remedy: "give virtiofsd a thread pool (--thread-pool-size; Kata: virtio_fs_extra_args), cache more in the guest (Kata: virtio_fs_cache=always; DAX), or move frequently written data to a block volume",
                next: "virtlens top VM: the other threads of virtiofsd",
            },
            Self::IothreadSaturated => About {
                name: "iothread_saturated",
                severity: WARNING,
                rule: "an iothread uses at least {iothread_busy}",
                remedy: "assign an iothread to each busy disk (KubeVirt: dedicatedIOThread: true; libvirt: virsh iothreadadd and <driver iothread='N'/>), or several to one disk (iothread-vq-mapping, QEMU 9.0)",
                next: "virtlens top VM: the other iothreads",
            },
            Self::VcpusSaturated => About {
                name: "vcpus_saturated",
                severity: WARNING,
                rule: "all vCPUs together run for at least {vcpus_busy} of the time, polling left out where it is known",
                remedy: "give the VM more vCPUs: a higher CPU limit, or default_vcpus where there is none",
                next: "the processes of the guest (top inside it), which the host cannot see",
            },
            Self::VcpuStarved => About {
                name: "vcpu_starved",
                severity: WARNING,
                rule: "a vCPU waits for a CPU for at least {vcpu_wait} of the time, throttling left out; the guest sees it as steal",
                remedy: "the host has too few CPUs for its load: move VMs to other nodes, lower the limits of others, or give this VM dedicated CPUs (KubeVirt: dedicatedCpuPlacement: true; kubelet: cpuManagerPolicy: static)",
                next: "virtlens trace VM: which threads ran instead; virtlens topology VM: where the vCPUs ran",
            },
            Self::HaltPollSpin => About {
                name: "halt_poll_spin",
                severity: INFO,
                rule: "at least {halt_poll} of the vCPUs' CPU time, and {halt_poll_cores}, is spent on polling for a wake-up",
                remedy: "lower /sys/module/kvm/parameters/halt_poll_ns on the host. Polling shortens wake-ups, and its CPU time counts against a CPU limit",
                next: "the share of unsuccessful polls (fail) in virtlens_halt_poll_seconds_total",
            },
            Self::OverheadHigh => About {
                name: "overhead_high",
                severity: INFO,
                rule: "at least {overhead} of the VM's CPU time, and {overhead_cores}, is not its vCPUs'",
                remedy: "reduce the busiest role: vhost (fewer, larger packets; offloads), virtiofsd (a block volume instead), emulator (virtio instead of emulated devices)",
                next: "virtlens top VM: roles and workers; virtlens trace VM: reasons of VM exits",
            },
            Self::VcpusExceedQuota => About {
                name: "vcpus_exceed_quota",
                severity: INFO,
                rule: "there are at least {vcpus_per_quota} as many vCPUs as cores in the CPU limit, and it throttles for at least {io_throttled} of the time",
                remedy: "lower default_vcpus in Kata's configuration.toml (a fraction is allowed), or raise the limit. With more vCPUs than the limit can run, each throttling stops more of them",
                next: "default_vcpus in the runtime's configuration and in the pod's annotations",
            },
            Self::DefaultVcpusWithLimit => About {
                name: "default_vcpus_with_limit",
                severity: INFO,
                rule: "there is a CPU limit, and the pod's annotation default_vcpus is above 1, or a Kata VM was booted with more than one vCPU and got more for the limit",
                remedy: "use one of the two: with a limit set default_vcpus to 1 or less, without a limit set default_vcpus",
                next: "virtlens snapshot -o json: vcpu_count, pod_spec",
            },
            Self::Place(kind) => place(kind),
            Self::ThreadsOutsidePod => About {
                name: "threads_outside_pod",
                severity: INFO,
                rule: "threads outside of the pod's cgroup use at least {outside_cores}",
                remedy: "add their CPU time to systemReserved.cpu of the kubelet, since the pod's limit and accounting do not include them",
                next: "virtlens_threads_outside_pod by role",
            },
            Self::ReportingChurn => About {
                name: "reporting_churn",
                severity: INFO,
                rule: "at least {refault_per_minute} of the guest's RAM is reported as free and faulted in again within a minute or less",
                remedy: "disable free page reporting for this VM, because it releases memory that the guest needs again (Kata: reclaim_guest_freed_memory=false; KubeVirt: annotation kubevirt.io/free-page-reporting-disabled: \"true\")",
                next: "virtlens_memory_release_seconds_total and virtlens_memory_refault_bytes_total",
            },
            Self::MemoryKept => About {
                name: "memory_kept",
                severity: INFO,
                rule: "the VM has no free page reporting and no active balloon, its vCPUs run for at most {kept_idle} of the time, and at least {kept_resident} of its RAM is resident in small pages",
                remedy: "enable free page reporting, which releases memory that the guest frees (Kata: reclaim_guest_freed_memory=true; libvirt: <memballoon freePageReporting='on'/>)",
                next: "virtlens_memory_resident_bytes, compared with the memory use that the guest reports",
            },
            Self::ThreadPoolIo => About {
                name: "thread_pool_io",
                severity: INFO,
                rule: "QEMU has at least {pool_threads} threads in its I/O thread pool",
                remedy: "use aio=native or aio=io_uring with cache=none for block devices: each pool thread costs context switches and uses the quota",
                next: "the -drive and -blockdev arguments of the VM: aio=threads is the default",
            },
        }
    }
}

/// Description of a placement check: the common part and the part of each kind.
const fn place(kind: MismatchKind) -> About {
    let rule = match kind {
        MismatchKind::SmtSplit => "vCPUs of one guest core are on different host cores",
        MismatchKind::SmtShared => "vCPUs of different guest cores are on one host core",
        MismatchKind::VcpuOverlap => "more vCPUs are pinned to a CPU or core than it has CPUs",
        MismatchKind::NumaSplit => {
            "vCPUs of a guest package are on several NUMA nodes, and one node had room"
        }
        MismatchKind::LlcSplit => "pinned vCPUs of a guest die are on several last-level caches",
        MismatchKind::HelperOnVcpu => "a helper thread may run on a CPU that a vCPU is pinned to",
        MismatchKind::RemoteMemory => "memory is on NUMA nodes without a vCPU of the VM",
    };
    About {
        name: kind.name(),
        severity: match kind {
            MismatchKind::LlcSplit => INFO,
            _ => WARNING,
        },
        rule,
        remedy: match kind {
            MismatchKind::HelperOnVcpu => {
                "isolateEmulatorThread: true (KubeVirt); virsh emulatorpin and iothreadpin (libvirt)"
            }
            MismatchKind::RemoteMemory => {
                "memoryManagerPolicy: Static of the kubelet; virsh numatune (libvirt)"
            }
            _ => {
                "dedicatedCpuPlacement: true with the kubelet option full-pcpus-only (KubeVirt); virsh vcpupin (libvirt); each finding names the vCPUs and pCPUs"
            }
        },
        next: PICTURE,
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Check;
    use crate::vocab::MismatchKind;

    #[test]
    fn check_names_are_unique() {
        let names: BTreeSet<_> = Check::ALL.iter().map(|check| check.name()).collect();
        assert_eq!(names.len(), Check::ALL.len());
        for kind in MismatchKind::ALL {
            assert!(names.contains(kind.name()));
        }
    }
}

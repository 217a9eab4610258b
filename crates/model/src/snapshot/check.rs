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
const PICTURE: &str = "virtlens topology VM: the host's CPUs, and who sits where";

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
                rule: "at least {quota_used} of a CPU limit is used, and it is throttled in at least {quota_throttled} of its periods, or of the time (up to that, where only the kernel's counters tell)",
                remedy: "raise the limit: resources.limits.cpu of the pod; overhead.podFixed.cpu of the RuntimeClass, which is added to it, where vhost and virtiofsd use it up; virsh schedinfo for libvirt",
                next: "virtlens trace VM: who ran when the limit was used up, and who then stood for how long; virtlens_throttle_duration_seconds: how long each throttle is",
            },
            Self::LimitWithoutVm => About {
                name: "limit_without_vm",
                severity: WARNING,
                rule: "the pod has a CPU limit, and all threads of its VM sit outside of the cgroup that it is set on: Kata's Go runtime with the systemd cgroup driver and sandbox_cgroup_only=false makes a cgroup at the top, named as the unit that it should be",
                remedy: "set sandbox_cgroup_only=true in Kata's configuration.toml, and make the pod anew",
                next: "virtlens snapshot -o json: cgroup, unapplied_limit; the pod can use more than it may, and kubelet's CPU metrics miss it",
            },
            Self::IoThrottled => About {
                name: "io_throttled",
                severity: WARNING,
                rule: "the threads of vhost, of virtiofsd or the iothreads could together run but did not for at least {io_throttled} of the time, under a limit that is throttled as long",
                remedy: "raise the limit: overhead.podFixed.cpu of the RuntimeClass or resources.limits.cpu of the pod; virsh schedinfo with emulator_quota or iothread_quota for libvirt",
                next: "virtlens trace VM: when each worker stood still; guest I/O takes up to a period (100 ms) longer",
            },
            Self::VhostSaturated => About {
                name: "vhost_saturated",
                severity: WARNING,
                rule: "a vhost worker uses at least {vhost_busy}; it is one thread, so one core is its end",
                remedy: "give the VM more queues: Kata makes one vhost worker for each vCPU that it boots with (default_vcpus); or pass a device through (SR-IOV)",
                next: "the other end of the connection: it may be the slower one",
            },
            Self::VirtiofsdSaturated => About {
                name: "virtiofsd_saturated",
                severity: WARNING,
                rule: "a thread of virtiofsd uses at least {virtiofsd_busy}",
                remedy: "let virtiofsd use a pool of threads (--thread-pool-size), cache more in the guest (cache=always, DAX), or put what is written often on a block volume",
                next: "virtlens top VM: the other threads of virtiofsd",
            },
            Self::IothreadSaturated => About {
                name: "iothread_saturated",
                severity: WARNING,
                rule: "an iothread uses at least {iothread_busy}",
                remedy: "give busy disks iothreads of their own, or one disk several (iothread-vq-mapping of QEMU 9.0)",
                next: "virtlens top VM: the other iothreads",
            },
            Self::VcpusSaturated => About {
                name: "vcpus_saturated",
                severity: WARNING,
                rule: "all vCPUs together run for at least {vcpus_busy} of the time, polling left out where it is known",
                remedy: "give the VM more vCPUs: a higher CPU limit, or default_vcpus where there is none",
                next: "which process of the guest it is: only the guest can tell",
            },
            Self::VcpuStarved => About {
                name: "vcpu_starved",
                severity: WARNING,
                rule: "a vCPU waits for a CPU for at least {vcpu_wait} of the time, throttling left out; the guest sees it as steal",
                remedy: "the host has too few CPUs for what runs on it: move VMs away, lower what others may use, or pin this one to CPUs of its own",
                next: "virtlens trace VM: who ran instead; virtlens topology VM: where the vCPUs ran",
            },
            Self::HaltPollSpin => About {
                name: "halt_poll_spin",
                severity: INFO,
                rule: "at least {halt_poll} of the vCPUs' CPU time, and {halt_poll_cores}, is spent on polling for a wake-up",
                remedy: "lower /sys/module/kvm/parameters/halt_poll_ns: polling pays in latency of wake-ups, and costs quota where there is a limit",
                next: "the share of polls that were in vain (fail) in virtlens_halt_poll_seconds_total",
            },
            Self::OverheadHigh => About {
                name: "overhead_high",
                severity: INFO,
                rule: "at least {overhead} of the VM's CPU time, and {overhead_cores}, is not its vCPUs'",
                remedy: "look at the busiest role: vhost (fewer, larger packets; offloads), virtiofsd (a block volume), emulator (devices that are emulated)",
                next: "virtlens top VM: its roles and workers; virtlens trace VM: why its vCPUs leave their guest",
            },
            Self::VcpusExceedQuota => About {
                name: "vcpus_exceed_quota",
                severity: INFO,
                rule: "there are at least {vcpus_per_quota} as many vCPUs as cores in the CPU limit, and it is throttled for at least {io_throttled} of the time",
                remedy: "lower default_vcpus of Kata's configuration.toml, which may be a fraction, or raise the limit: more vCPUs than the limit can run make each throttle hit more of them",
                next: "the annotations and the configuration of the runtime: default_vcpus",
            },
            Self::DefaultVcpusWithLimit => About {
                name: "default_vcpus_with_limit",
                severity: INFO,
                rule: "there is a CPU limit, and the pod's annotation default_vcpus is above 1, or a Kata VM was booted with more than one vCPU and got more for the limit",
                remedy: "use one of the two: with a limit leave default_vcpus at 1 or less, without one set default_vcpus",
                next: "virtlens snapshot -o json: vcpu_count, pod_spec",
            },
            Self::Place(kind) => place(kind),
            Self::ThreadsOutsidePod => About {
                name: "threads_outside_pod",
                severity: INFO,
                rule: "threads that sit outside of the pod's cgroup use at least {outside_cores}",
                remedy: "add what they use to systemReserved.cpu of the kubelet: the pod's limit and its accounting miss them",
                next: "virtlens_threads_outside_pod by role",
            },
            Self::ReportingChurn => About {
                name: "reporting_churn",
                severity: INFO,
                rule: "at least {refault_per_minute} of the guest's RAM is reported as free and taken again in a minute, or in less",
                remedy: "free page reporting does not pay for this VM: switch it off for it (Kata: reclaim_guest_freed_memory=false; KubeVirt: disable free page reporting by its annotation)",
                next: "virtlens_memory_release_seconds_total and virtlens_memory_refault_bytes_total",
            },
            Self::MemoryKept => About {
                name: "memory_kept",
                severity: INFO,
                rule: "the VM has no free page reporting and no balloon at work, its vCPUs run for at most {kept_idle} of the time, and the host holds at least {kept_resident} of its RAM in small pages",
                remedy: "switch free page reporting on, so that what the guest frees comes back (Kata: reclaim_guest_freed_memory=true)",
                next: "virtlens_memory_resident_bytes beside what the guest says it uses",
            },
            Self::ThreadPoolIo => About {
                name: "thread_pool_io",
                severity: INFO,
                rule: "QEMU has at least {pool_threads} threads in its pool for I/O",
                remedy: "use aio=native or aio=io_uring with cache=none for block devices: threads cost switches and a place in the quota each",
                next: "the VM's -drive and -blockdev arguments: aio=threads is the default",
            },
        }
    }
}

/// Description of a placement check: the common part and the part of each kind.
const fn place(kind: MismatchKind) -> About {
    let rule = match kind {
        MismatchKind::SmtSplit => "guest siblings sit on different host cores",
        MismatchKind::SmtShared => "vCPUs of different guest cores sit on one host core",
        MismatchKind::VcpuOverlap => "more vCPUs are pinned to a CPU or core than it has CPUs",
        MismatchKind::NumaSplit => {
            "vCPUs of a guest package sit on several NUMA nodes, and one had room"
        }
        MismatchKind::LlcSplit => "pinned vCPUs of a guest die sit on several last-level caches",
        MismatchKind::HelperOnVcpu => "a helper thread may run on a CPU that a vCPU is pinned to",
        MismatchKind::RemoteMemory => "memory is on NUMA nodes where no vCPU sits",
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
                "dedicatedCpuPlacement: true with the kubelet option full-pcpus-only (KubeVirt); virsh vcpupin (libvirt); each finding says which"
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
    fn all_checks_have_names_of_their_own() {
        let names: BTreeSet<_> = Check::ALL.iter().map(|check| check.name()).collect();
        assert_eq!(names.len(), Check::ALL.len());
        for kind in MismatchKind::ALL {
            assert!(names.contains(kind.name()));
        }
    }
}

//! The table of checks: severity, rule, impact, remedy and next step.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::vocab::MismatchKind;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
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
    /// KVM logs the guest's writes.
    DirtyLogging,
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
    /// The effect on the guest or the node.
    pub impact: &'static str,
    /// The remedy for an unknown VM. If the remedy depends on the runtime, the cgroup
    /// driver or the cgroup version, the finding carries a more specific one.
    pub remedy: &'static str,
    /// The next step of a diagnosis: a command in which `VM` stands for the VM's name, a
    /// metric or a runbook.
    pub next: &'static str,
}

const WARNING: Severity = Severity::Warning;
const INFO: Severity = Severity::Info;

/// The next step for placement problems.
const TOPOLOGY: &str = "virtlens topology VM: the host's CPUs with the vCPUs on them; runbook VirtlensTopologyMismatch";

impl Check {
    /// All checks, those that explain most first.
    pub const ALL: [Self; 24] = [
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
        Self::DirtyLogging,
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
                impact: "the kernel stops the VM's threads until the next period (100 ms by default): the guest loses CPU time, and its latency rises",
                remedy: "raise the limit (Kata: resources.limits.cpu of the pod, or overhead.podFixed.cpu of the RuntimeClass, which kubelet adds to it, if vhost and virtiofsd use the limit; KubeVirt: resources.limits.cpu of the VirtualMachine's domain; libvirt: virsh schedinfo DOMAIN --live --set vcpu_quota=-1)",
                next: "virtlens trace VM --for 10s: which thread ran when the quota ran out, and how long each thread was throttled; virtlens_throttle_duration_seconds: durations of throttling; runbook VirtlensCPUQuotaSaturated",
            },
            Self::LimitWithoutVm => About {
                name: "limit_without_vm",
                severity: WARNING,
                rule: "the pod has a CPU limit, and all threads of its VM are outside of the cgroup that has the limit: with the systemd cgroup driver and sandbox_cgroup_only=false, Kata's Go runtime creates a top-level cgroup with the name of a systemd unit instead",
                impact: "the VM can use more CPU time than the limit, at the expense of other pods, and kubelet's CPU metrics do not include it",
                remedy: "set sandbox_cgroup_only=true in Kata's configuration.toml, and create the pod again",
                next: "virtlens snapshot -o json: cgroup and unapplied_limit of the VM",
            },
            Self::IoThrottled => About {
                name: "io_throttled",
                severity: WARNING,
                rule: "the threads of vhost, of virtiofsd or the iothreads were together runnable without running for at least {io_throttled} of the time, under a limit that throttles as long",
                impact: "guest I/O waits up to one period (100 ms) longer, although the device is ready",
                remedy: "raise the limit (Kata: overhead.podFixed.cpu of the RuntimeClass or resources.limits.cpu of the pod; KubeVirt: resources.limits.cpu of the VirtualMachine's domain; libvirt: virsh schedinfo DOMAIN --live --set emulator_quota=-1, or iothread_quota)",
                next: "virtlens trace VM --for 10s: when each worker was throttled; runbook VirtlensIOHelperThrottled",
            },
            Self::VhostSaturated => About {
                name: "vhost_saturated",
                severity: WARNING,
                rule: "a vhost worker uses at least {vhost_busy}; it is one thread, so it cannot use more than one core",
                impact: "the guest's network throughput cannot rise, and packets wait or are dropped",
                remedy: "add queues: Kata creates one vhost worker per vCPU at boot (default_vcpus); KubeVirt: networkInterfaceMultiqueue: true; libvirt: <driver name='vhost' queues='N'/>; or pass a device through (SR-IOV)",
                next: "virtlens top VM: the other vhost workers; the peer of the connection, which may be the slower end; runbook VirtlensVhostWorkerSaturated",
            },
            Self::VirtiofsdSaturated => About {
                name: "virtiofsd_saturated",
                severity: WARNING,
                rule: "a thread of virtiofsd uses at least {virtiofsd_busy}",
                impact: "the throughput of the guest's shared directories cannot rise, and its processes wait for them",
                remedy: "give virtiofsd a thread pool (Kata: --thread-pool-size=N in virtio_fs_extra_args; libvirt: <binary><thread_pool size='N'/></binary>), cache more in the guest (Kata: virtio_fs_cache=always; libvirt: <cache mode='always'/>), or move frequently written data to a block volume",
                next: "virtlens top VM: the other threads of virtiofsd; runbook VirtlensStorageWorkerSaturated",
            },
            Self::IothreadSaturated => About {
                name: "iothread_saturated",
                severity: WARNING,
                rule: "an iothread uses at least {iothread_busy}",
                impact: "the throughput of all disks of this iothread cannot rise, and their latency rises with the queue depth",
                remedy: "assign an iothread to each busy disk (KubeVirt: dedicatedIOThread: true; libvirt: virsh iothreadadd and <driver iothread='N'/>), or several to one disk (iothread-vq-mapping, QEMU 9.0)",
                next: "virtlens top VM: the other iothreads; runbook VirtlensStorageWorkerSaturated",
            },
            Self::VcpusSaturated => About {
                name: "vcpus_saturated",
                severity: WARNING,
                rule: "all vCPUs together run for at least {vcpus_busy} of the time, polling left out where it is known",
                impact: "the guest's processes wait for a vCPU",
                remedy: "give the VM more vCPUs (Kata: a higher resources.limits.cpu, or default_vcpus in configuration.toml for pods without a limit; KubeVirt: cpu.sockets of the VirtualMachine's domain; libvirt: virsh setvcpus DOMAIN COUNT --live)",
                next: "top inside the guest, since the host cannot see its processes; runbook VirtlensVCPUsSaturated",
            },
            Self::VcpuStarved => About {
                name: "vcpu_starved",
                severity: WARNING,
                rule: "a vCPU waits for a CPU for at least {vcpu_wait} of the time, throttling left out; the guest sees it as steal",
                impact: "the guest stops while it has work: latency rises, and a vCPU that is stopped with a lock held stalls the others",
                remedy: "the host has too few CPUs for its load: move VMs to other nodes, lower the limits of others, or give this VM dedicated CPUs (KubeVirt: dedicatedCpuPlacement: true; Kata: a pod of the Guaranteed class; both with cpuManagerPolicy: static of the kubelet; libvirt: virsh vcpupin DOMAIN VCPU CPUS --live)",
                next: "virtlens trace VM --for 10s: which threads ran instead; virtlens topology VM: where the vCPUs ran; runbook VirtlensVCPUStealHigh",
            },
            Self::HaltPollSpin => About {
                name: "halt_poll_spin",
                severity: INFO,
                rule: "at least {halt_poll} of the vCPUs' CPU time, and {halt_poll_cores}, is spent on polling for a wake-up",
                impact: "polling wakes a vCPU earlier, but its CPU time counts against the CPU limit and slows the SMT sibling",
                remedy: "limit polling on the host: echo 50000 > /sys/module/kvm/parameters/halt_poll_ns (ns; 0 disables polling; the default on x86 is 200000)",
                next: "the share of unsuccessful polls (fail) in virtlens_halt_poll_seconds_total; runbook VirtlensHaltPollingHigh",
            },
            Self::OverheadHigh => About {
                name: "overhead_high",
                severity: INFO,
                rule: "at least {overhead} of the VM's CPU time, and {overhead_cores}, is not its vCPUs'",
                impact: "this CPU time counts against the limit, although the guest's processes did not use it",
                remedy: "reduce the busiest role: vhost (fewer, larger packets; offloads), virtiofsd (a block volume instead), emulator (virtio instead of emulated devices)",
                next: "virtlens top VM: roles and workers; virtlens trace VM --for 10s: reasons of VM exits; runbook VirtlensQuotaConsumedByHelpers",
            },
            Self::VcpusExceedQuota => About {
                name: "vcpus_exceed_quota",
                severity: INFO,
                rule: "there are at least {vcpus_per_quota} as many vCPUs as cores in the CPU limit, and it throttles for at least {io_throttled} of the time",
                impact: "the vCPUs together use up the quota early in a period, and then all of them stop",
                remedy: "lower the number of vCPUs (Kata: default_vcpus in configuration.toml, also a fraction; KubeVirt: cpu.cores of the VirtualMachine's domain; libvirt: virsh setvcpus DOMAIN COUNT --live), or raise the limit",
                next: "virtlens snapshot -o json: vcpu_count and pod_spec of the VM; default_vcpus in the runtime's configuration",
            },
            Self::DefaultVcpusWithLimit => About {
                name: "default_vcpus_with_limit",
                severity: INFO,
                rule: "there is a CPU limit, and the pod's annotation default_vcpus is above 1, or a Kata VM was booted with more than one vCPU and got more for the limit",
                impact: "the VM has more vCPUs than the limit can run: it is throttled in more periods, and each vCPU costs memory",
                remedy: "use one of the two (Kata: for pods with a limit set default_vcpus to 1 or less in configuration.toml and in the annotation io.katacontainers.config.hypervisor.default_vcpus)",
                next: "virtlens snapshot -o json: vcpu_count and pod_spec of the VM; runbook VirtlensDefaultVCPUsWithCPULimit",
            },
            Self::Place(kind) => place(kind),
            Self::ThreadsOutsidePod => About {
                name: "threads_outside_pod",
                severity: INFO,
                rule: "threads outside the pod's cgroup use at least {outside_cores}",
                impact: "the pod's limit and kubelet's metrics do not include this CPU time, so the node runs more than the scheduler knows",
                remedy: "add their CPU time to systemReserved.cpu in the kubelet's configuration (Kata: or set sandbox_cgroup_only=true in configuration.toml)",
                next: "virtlens_threads_outside_pod by role; virtlens snapshot -o json: outside_pod of the VM's roles",
            },
            Self::ReportingChurn => About {
                name: "reporting_churn",
                severity: INFO,
                rule: "at least {refault_per_minute} of the guest's RAM is reported as free and faulted in again within a minute or less",
                impact: "each page that the guest uses again costs a VM exit and a page fault",
                remedy: "disable free page reporting for this VM, because it releases memory that the guest needs again (Kata: reclaim_guest_freed_memory=false; KubeVirt: annotation kubevirt.io/free-page-reporting-disabled: \"true\"; libvirt: <memballoon freePageReporting='off'/>)",
                next: "virtlens_memory_release_seconds_total and virtlens_memory_refault_bytes_total; runbook VirtlensMemoryRefaultHigh",
            },
            Self::MemoryKept => About {
                name: "memory_kept",
                severity: INFO,
                rule: "the VM has no free page reporting and no active balloon, its vCPUs run for at most {kept_idle} of the time, and at least {kept_resident} of its RAM is resident in small pages",
                impact: "the memory is of no use to the idle guest, and no other pod can have it",
                remedy: "enable free page reporting, which releases memory that the guest frees (Kata: reclaim_guest_freed_memory=true; KubeVirt: remove the annotation kubevirt.io/free-page-reporting-disabled; libvirt: <memballoon freePageReporting='on'/>)",
                next: "virtlens_memory_resident_bytes, compared with the memory use that the guest reports; runbook VirtlensMemoryNotReturned",
            },
            Self::DirtyLogging => About {
                name: "dirty_logging",
                severity: INFO,
                rule: "during the whole interval KVM logs the writes to at least half of the guest's RAM, as for a live migration, a snapshot of its memory or a measurement of its dirty rate",
                impact: "KVM maps the RAM in pages of 4 KiB, and the first write to a page in each round causes a page fault or fills a log that causes an exit: page faults and exits rise, and the guest runs slower",
                remedy: "let the migration end; if it does not converge, allow more bandwidth, a longer downtime, or post-copy (KubeVirt: bandwidthPerMigration, allowAutoConverge, allowPostCopy of a MigrationPolicy; libvirt: virsh migrate-setspeed DOMAIN MIB, virsh migrate-setmaxdowntime DOMAIN MS), or cancel it (virsh domjobabort DOMAIN); without a migration, turn the log off (Firecracker: track_dirty_pages=false, unless diff snapshots are needed)",
                next: "virtlens_memory_dirty_logging_age_seconds: for how long; virtlens_memory_faults_total and virtlens_kvm_exits_total: its cost; virsh domjobinfo DOMAIN: rounds and remaining memory of a migration",
            },
            Self::ThreadPoolIo => About {
                name: "thread_pool_io",
                severity: INFO,
                rule: "QEMU has at least {pool_threads} threads in its I/O thread pool",
                impact: "each request is handed to a pool thread and back: latency and context switches rise, and the pool uses the quota",
                remedy: "use native or io_uring I/O for block devices (Kata: block_device_aio=\"io_uring\" in configuration.toml; KubeVirt: io: native and cache: none of the disk; libvirt: <driver io='io_uring'/>, or io='native' with cache='none')",
                next: "virtlens top VM: the emulator's CPU time; the -drive and -blockdev arguments of the VM, where aio=threads is the default",
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
        impact: place_impact(kind),
        remedy: place_remedy(kind),
        next: TOPOLOGY,
    }
}

/// The effect of a placement problem on the guest.
const fn place_impact(kind: MismatchKind) -> &'static str {
    match kind {
        MismatchKind::SmtSplit => {
            "the guest's scheduler expects these vCPUs to share one core: it leaves one idle while the other is busy"
        }
        MismatchKind::SmtShared => {
            "the guest's scheduler runs two busy threads on what it takes for two cores, and they share the units and the L1 cache of one"
        }
        MismatchKind::VcpuOverlap => {
            "only one of these vCPUs per pCPU runs at a time, and the others see steal"
        }
        MismatchKind::NumaSplit => {
            "the guest expects equal distances, but data shared by its vCPUs crosses the link between nodes"
        }
        MismatchKind::LlcSplit => {
            "data shared by the guest's threads moves between caches, which costs latency"
        }
        MismatchKind::HelperOnVcpu => {
            "the thread preempts a pinned vCPU, which cannot move away: the guest's latency has peaks"
        }
        MismatchKind::RemoteMemory => {
            "each access to this memory crosses the link between nodes, with more latency and less bandwidth"
        }
    }
}

/// The remedy for a placement problem in general; findings have commands with numbers.
const fn place_remedy(kind: MismatchKind) -> &'static str {
    match kind {
        MismatchKind::SmtSplit | MismatchKind::SmtShared | MismatchKind::VcpuOverlap => {
            "pin the threads of each guest core to the threads of one host core (KubeVirt: dedicatedCpuPlacement: true and cpu.threads as on the host, with cpuManagerPolicy: static and full-pcpus-only of the kubelet; Kata: enable_vcpus_pinning in configuration.toml, with cpuManagerPolicy: static; libvirt: virsh vcpupin DOMAIN VCPU CPU --live; other VMs: taskset -pc CPU TID); findings name the numbers"
        }
        MismatchKind::NumaSplit => {
            "give the VM CPUs of one node (KubeVirt, Kata: topologyManagerPolicy: single-numa-node of the kubelet; libvirt: virsh vcpupin DOMAIN VCPU CPUS --live; other VMs: taskset -pc CPUS TID); findings name the numbers"
        }
        MismatchKind::LlcSplit => {
            "pin the vCPUs to one cache (KubeVirt, Kata: prefer-align-cpus-by-uncorecache in cpuManagerPolicyOptions of the kubelet; libvirt: virsh vcpupin DOMAIN VCPU CPU --live; other VMs: taskset -pc CPU TID); findings name the numbers"
        }
        MismatchKind::HelperOnVcpu => {
            "run the thread on other CPUs (KubeVirt: isolateEmulatorThread: true; Kata: enable_vcpus_pinning=false in configuration.toml; libvirt: virsh emulatorpin DOMAIN CPUS --live, virsh iothreadpin DOMAIN ID CPUS --live; other VMs: taskset -pc CPUS TID); findings name the numbers"
        }
        MismatchKind::RemoteMemory => {
            "move the memory (migratepages PID FROM TO), and keep it there (KubeVirt, Kata: memoryManagerPolicy: Static of the kubelet; libvirt: virsh numatune DOMAIN --mode strict --nodeset NODES --config); findings name the numbers"
        }
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Check {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let mut all = Self::ALL.into_iter();
        let found = all.find(|check| check.name() == name);
        found.ok_or_else(|| Error::custom(format!("unknown check {name}")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Check;
    use crate::vocab::MismatchKind;

    #[test]
    fn all_checks_have_impact_remedy_and_next_step() {
        for check in Check::ALL {
            let about = check.about();
            for part in [about.rule, about.impact, about.remedy, about.next] {
                assert!(
                    part.len() > 20 && !part.ends_with('.'),
                    "{}: {part}",
                    about.name
                );
            }
        }
    }

    #[test]
    fn check_names_are_unique() {
        let names: BTreeSet<_> = Check::ALL.iter().map(|check| check.name()).collect();
        assert_eq!(names.len(), Check::ALL.len());
        for kind in MismatchKind::ALL {
            assert!(names.contains(kind.name()));
        }
    }
}

//! Decides which programs are loaded on a kernel, and why the others are not. Pure.

use std::time::Duration;

use virtlens_abi::map::VhostFields;

use crate::facts::KernelFacts;

/// A set of programs with one purpose, under the name that is shown to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// The pass over all tasks.
    TaskPass,
    /// The pass over open files: vCPUs in user space and vhost workers.
    FilePass,
    /// The times of exited threads.
    Lifetime,
    /// The times of threads before they changed their name, and single threads that are moved
    /// to another cgroup.
    Rename,
    /// CPU time of vCPUs per pCPU, and their migrations.
    Placement,
    /// When CPU quotas were exhausted, for how long, and which threads were running.
    Throttle,
    /// Memory that guests gave back, and took again.
    Memory,
}

impl Feature {
    /// All features, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::TaskPass,
        Self::FilePass,
        Self::Lifetime,
        Self::Rename,
        Self::Placement,
        Self::Throttle,
        Self::Memory,
    ];

    /// The name as shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TaskPass => "task_pass",
            Self::FilePass => "file_pass",
            Self::Lifetime => "lifetime",
            Self::Rename => "rename",
            Self::Placement => "placement",
            Self::Throttle => "throttle",
            Self::Memory => "memory",
        }
    }

    /// The names of its programs in the object; for the task pass, the iterator program.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::TaskPass => &["sample_tasks"],
            Self::FilePass => &["sample_files"],
            Self::Lifetime => &["on_exit", "on_free"],
            Self::Rename => &["on_rename"],
            Self::Placement => &["on_migrate"],
            Self::Throttle => &["on_throttle", "pre_unthrottle", "on_unthrottle"],
            Self::Memory => &[
                "on_madvise",
                "on_madvise_ret",
                "on_fallocate",
                "on_falloc_ret",
            ],
        }
    }

    /// Whether its programs are attached to hooks, and so run without a reading.
    pub const fn has_hooks(self) -> bool {
        !matches!(self, Self::TaskPass | Self::FilePass)
    }

    /// The programs that are attached only once a VM needs them.
    pub const fn attached_at_need(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["on_madvise", "on_fallocate"],
            _ => &[],
        }
    }

    /// The data that is missing without it.
    pub const fn without(self) -> &'static str {
        match self {
            Self::TaskPass => {
                "VMs are found through /proc, and vCPUs are recognized by thread name"
            }
            Self::FilePass => {
                "vCPU threads in user space when their VM is found count as emulator, and the \
                 devices of vhost workers are unknown"
            }
            Self::Lifetime => "CPU time of threads between the last reading and their end is lost",
            Self::Rename => "CPU time of renamed threads moves to their new role",
            Self::Placement => {
                "vCPU residency is unknown, and the topology of VMs without pinned vCPUs is not \
                 judged"
            }
            Self::Throttle => {
                "throttling is limited to the kernel's counters: no wall time, no durations, no \
                 role that ran when the quota ran out"
            }
            Self::Memory => "ballooned, reported and refaulted guest memory is unknown",
        }
    }
}

/// The programs to load, and their settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The features to load.
    pub features: Vec<Feature>,
    /// Thread states are kept in task storage.
    pub task_storage: bool,
    /// The task pass runs as `walk_tasks`.
    pub walks: bool,
    /// 64-bit words of an affinity mask; 0 if masks are too long.
    pub mask_words: usize,
    /// Offset of the worker in `struct kvm_pit`, bytes; 0 if unknown.
    pub pit_worker: u32,
    /// Field offsets of vhost devices, if vhost is built into the kernel.
    pub vhost: Option<VhostFields>,
    /// Entries of the map `residency`.
    pub residency_entries: u32,
    /// Maximum error of a process's resident memory where each CPU batches its updates.
    pub rss_error_bytes: u64,
    /// Hooks are attached when the first VM is found, and detached once there has been no VM
    /// for this long. `None`: they are attached from the start to the end.
    pub detach_after: Option<Duration>,
    /// Features that are left out, and why.
    pub left_out: Vec<(Feature, String)>,
}

impl Plan {
    /// The names of all programs of a feature in the object.
    pub fn programs_of(&self, feature: Feature) -> &'static [&'static str] {
        match feature {
            Feature::TaskPass if self.walks => &["walk_tasks"],
            Feature::Rename if self.walks => &["on_rename", "on_cgroup_move"],
            _ => feature.programs(),
        }
    }

    /// The names of all programs to load.
    pub fn programs(&self) -> impl Iterator<Item = &'static str> {
        let features = self.features.iter();
        features
            .flat_map(|feature| self.programs_of(*feature))
            .copied()
    }

    /// Returns the same plan with only these features.
    #[must_use]
    pub(crate) fn only(&self, features: &[Feature]) -> Self {
        Self {
            features: features.to_vec(),
            ..self.clone()
        }
    }

    /// Returns the same plan for a caller that uses `wanted` only: other features are
    /// neither loaded nor reported.
    #[must_use]
    pub fn limited_to(mut self, wanted: &[Feature]) -> Self {
        self.features.retain(|one| wanted.contains(one));
        self.left_out.retain(|(one, _)| wanted.contains(one));
        self
    }

    /// Returns the same plan with this [`detach_after`](Self::detach_after).
    #[must_use]
    pub fn detached_after(mut self, idle: Option<Duration>) -> Self {
        self.detach_after = idle;
        self
    }

    /// Returns the same plan without `feature`, because of `reason`.
    #[must_use]
    pub fn without(mut self, feature: Feature, reason: String) -> Self {
        self.features.retain(|one| *one != feature);
        self.left_out.push((feature, reason));
        self
    }
}

/// Number of vCPUs for which all pCPUs of the host fit: enough for the vCPUs of a full
/// node.
const VCPUS_KEPT: usize = 4096;

/// Number of (vCPU, pCPU) pairs that take 10 MiB of kernel memory.
const RESIDENCY_USUAL: usize = 131_072;

/// On large hosts: number of vCPUs per pCPU for which all pCPUs fit.
const VCPUS_A_CPU: usize = 4;

/// Maximum number of pairs, 40 MiB: an agent may have a limit of 128 MiB. Losses by a
/// full map are counted.
const RESIDENCY_MAX: usize = 524_288;

/// Returns the size of `residency`. Entries are per pCPU, because the diagnosis of
/// unpinned vCPUs is per core (`smt_*`): caches would be too coarse, and cores save half
/// of the entries at most. The map cannot grow when a vCPU migrates, because a run queue
/// is locked then.
fn residency_entries(cpus: usize) -> u32 {
    let cpus = cpus.max(1);
    let usual = cpus.saturating_mul(VCPUS_KEPT).min(RESIDENCY_USUAL);
    let large = cpus.saturating_mul(cpus).saturating_mul(VCPUS_A_CPU);
    u32::try_from(usual.max(large).min(RESIDENCY_MAX)).unwrap_or(u32::MAX)
}

/// Maximum error of a process's resident memory since v6.2, bytes: each online CPU
/// batches up to 32 pages, or twice the number of CPUs if that is more
/// (`compute_batch_value`, `lib/percpu_counter.c`).
fn rss_error_bytes(online_cpus: usize) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let cpus = online_cpus as u64;
    let pages = cpus.saturating_mul(2).max(32);
    pages.saturating_mul(cpus).saturating_mul(PAGE_BYTES)
}

/// Decides from the facts about the kernel.
pub fn plan(facts: &KernelFacts) -> Plan {
    let words = facts.cpu_numbers.div_ceil(64);
    let plan = Plan {
        features: Feature::ALL.to_vec(),
        task_storage: facts.task_storage,
        walks: facts.task_walk && facts.task_storage,
        mask_words: if words > virtlens_abi::MASK_WORDS_MAX {
            0
        } else {
            words
        },
        pit_worker: facts.pit_worker.unwrap_or(0),
        vhost: facts.vhost,
        residency_entries: residency_entries(facts.possible_cpus),
        rss_error_bytes: rss_error_bytes(facts.online_cpus),
        detach_after: None,
        left_out: Vec::new(),
    };
    let obstacles = |feature| match feature {
        Feature::Throttle => throttle_obstacle(facts),
        Feature::Memory => (!facts.fentry).then_some(NO_FENTRY),
        _ => None,
    };
    let of_all = obstacle(facts);
    Feature::ALL
        .into_iter()
        .fold(plan, |plan, feature| match of_all.or(obstacles(feature)) {
            Some(reason) => plan.without(feature, reason.to_owned()),
            None => plan,
        })
}

/// Returns the reason why the programs on the scheduler's throttling cannot be used.
pub(crate) fn throttle_obstacle(facts: &KernelFacts) -> Option<&'static str> {
    if !facts.throttle_functions {
        Some(
            "the kernel has no CPU limits (CONFIG_CFS_BANDWIDTH), or inlines its throttling \
             functions",
        )
    } else if !facts.fentry {
        Some(NO_FENTRY)
    } else {
        None
    }
}

/// Returns the reason why a trace cannot run. Its programs write to a ring buffer from
/// the scheduler.
pub(crate) fn trace_obstacle(facts: &KernelFacts) -> Option<&'static str> {
    let sleeps = facts.ring_sleeps.then_some(
        "BPF ring buffers of this PREEMPT_RT kernel take a sleeping lock (CVE-2024-50138), and a \
         trace writes to them under run queue locks: use Linux 6.12 or later, or a stable kernel \
         with the fix",
    );
    obstacle(facts).or(sleeps)
}

/// The reason why programs on kernel functions are left out.
const NO_FENTRY: &str = "the kernel does not support fentry programs";

/// The reason why a process with all capabilities loads nothing.
pub const FILTERED: &str = "a seccomp filter refuses bpf(2): use a profile that allows it (chart: \
                            podSecurityContext.seccompProfile)";

/// Returns the reason why no program can be used, with its remedy.
pub(crate) fn obstacle(facts: &KernelFacts) -> Option<&'static str> {
    if !facts.may_load {
        Some("no permission to load BPF programs: run as root, or with CAP_BPF and CAP_PERFMON")
    } else if facts.bpf_filtered {
        Some(FILTERED)
    } else if !facts.btf {
        Some(
            "no kernel type information (/sys/kernel/btf/vmlinux): requires CONFIG_DEBUG_INFO_BTF \
             and a mounted /sys",
        )
    } else if facts.lockdown == "confidentiality" {
        Some("lockdown=confidentiality prevents BPF from reading kernel memory")
    } else if !facts.host_pids {
        Some(
            "running in a separate pid namespace, where other processes are not visible: use the \
             host's (hostPID: true)",
        )
    } else if !facts.task_iter {
        Some("the kernel has no task iterators: requires Linux 5.8 or later")
    } else if facts.kvm_types_in_module && !facts.kvm_types {
        Some("only the module kvm provides KVM's types: requires --loader libbpf and CAP_SYS_ADMIN")
    } else if !(facts.preempt_notifiers && facts.kvm_types) {
        Some(
            "KVM's types not found: the kernel is built without KVM or without its types, or the \
             module kvm, which provides them, was not loaded when virtlens started: load it and \
             restart virtlens",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests;

//! What is loaded on a kernel, and why the rest is not. Pure.

use virtlens_abi::VhostFields;

use crate::facts::KernelFacts;

/// What a set of programs is good for, by the name under which it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// The pass over all tasks.
    TaskPass,
    /// The pass over open files: paused VMs.
    FilePass,
    /// What threads that ended had used.
    Lifetime,
    /// What threads had used before they changed their name.
    Rename,
    /// On which pCPUs vCPUs ran, and how often they moved.
    Placement,
    /// When quotas ran out, for how long, and who ran then.
    Throttle,
    /// What guests gave back of their memory, and took again.
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

    /// The names of its programs in the object: of the task pass, that of an iterator.
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

    /// Those of them that are attached only when a VM needs them.
    pub const fn attached_at_need(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["on_madvise", "on_fallocate"],
            _ => &[],
        }
    }

    /// What is lost without it.
    pub const fn without(self) -> &'static str {
        match self {
            Self::TaskPass => "VMs are found by /proc, vCPUs by their threads' names",
            Self::FilePass => {
                "a VM whose vCPUs have not run yet is not seen, and a vCPU that is in user space \
                 as its VM is met counts as the emulator's"
            }
            Self::Lifetime => "what a thread used after the last reading before its end is lost",
            Self::Rename => {
                "what a thread used before it changed its name moves to the role that it has then"
            }
            Self::Placement => {
                "where vCPUs ran is not known: VMs that are not pinned are not judged by topology"
            }
            Self::Throttle => {
                "of throttling there is what the kernel counts: not the wall time, not each \
                 duration, not who ran when the quota ran out"
            }
            Self::Memory => {
                "what balloons and free page reports gave back, and what guests took again, is \
                 not known"
            }
        }
    }
}

/// What to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The features to load.
    pub features: Vec<Feature>,
    /// Marks live in task storage.
    pub task_storage: bool,
    /// The task pass goes from task to task by itself.
    pub walks: bool,
    /// 64-bit words of an affinity mask; 0 where masks are too long.
    pub mask_words: usize,
    /// Where `struct kvm_pit` has its worker, bytes; 0 where that is not known.
    pub pit_worker: u32,
    /// Where vhost devices lead to their workers, where vhost is no module.
    pub vhost: Option<VhostFields>,
    /// Entries of the map `residency`.
    pub residency_entries: u32,
    /// By how much a process's resident memory may be off where each CPU keeps some of it
    /// aside.
    pub rss_error_bytes: u64,
    /// Features that are left out, and why.
    pub left_out: Vec<(Feature, String)>,
}

impl Plan {
    /// The names of all programs of a feature in the object.
    pub fn programs_of(&self, feature: Feature) -> &'static [&'static str] {
        match feature {
            Feature::TaskPass if self.walks => &["walk_tasks"],
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

    /// The same plan with these features alone.
    #[must_use]
    pub(crate) fn only(&self, features: &[Feature]) -> Self {
        Self {
            features: features.to_vec(),
            ..self.clone()
        }
    }

    /// The same plan without `feature`, because of `reason`.
    #[must_use]
    pub fn without(mut self, feature: Feature, reason: String) -> Self {
        self.features.retain(|one| *one != feature);
        self.left_out.push((feature, reason));
        self
    }
}

/// vCPUs on all pCPUs of the host: enough for those of a full node to have
/// been everywhere.
const VCPUS_KEPT: usize = 4096;

/// Pairs of a vCPU and a pCPU that take 10 MiB of the kernel's memory.
const RESIDENCY_USUAL: usize = 131_072;

/// On large hosts as many vCPUs a pCPU may have been everywhere.
const VCPUS_A_CPU: usize = 4;

/// No more pairs than these, 40 MiB: an agent may be given 128. What finds no room is
/// counted.
const RESIDENCY_MAX: usize = 524_288;

/// Single pCPUs, since vCPUs that float are judged by cores (`smt_*`): caches would be
/// too coarse, and cores save half of it at most. No room can be made when a vCPU moves,
/// as that is with a run queue locked.
fn residency_entries(cpus: usize) -> u32 {
    let cpus = cpus.max(1);
    let usual = cpus.saturating_mul(VCPUS_KEPT).min(RESIDENCY_USUAL);
    let large = cpus.saturating_mul(cpus).saturating_mul(VCPUS_A_CPU);
    u32::try_from(usual.max(large).min(RESIDENCY_MAX)).unwrap_or(u32::MAX)
}

/// What the CPUs that are online may keep aside of a process's resident memory since
/// v6.2: each up to 32 pages, or twice their number if that is more
/// (`compute_batch_value`, `lib/percpu_counter.c`).
fn rss_error_bytes(online_cpus: usize) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let cpus = online_cpus as u64;
    let pages = cpus.saturating_mul(2).max(32);
    pages.saturating_mul(cpus).saturating_mul(PAGE_BYTES)
}

/// Decides from the facts.
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

/// What stands in the way of programs at the scheduler's throttling.
pub(crate) fn throttle_obstacle(facts: &KernelFacts) -> Option<&'static str> {
    if !facts.throttle_functions {
        Some(
            "the kernel has no CPU limits (CONFIG_CFS_BANDWIDTH), or its throttling is no \
             function of its own",
        )
    } else if !facts.fentry {
        Some(NO_FENTRY)
    } else {
        None
    }
}

/// What stands in the way of a trace, whose programs write to a ring buffer from the
/// scheduler.
pub(crate) fn trace_obstacle(facts: &KernelFacts) -> Option<&'static str> {
    let sleeps = facts.ring_sleeps.then_some(
        "this PREEMPT_RT kernel takes a sleeping lock in BPF ring buffers, which a trace writes \
         to with run queues locked (CVE-2024-50138): use Linux 6.12 or later, or a stable kernel \
         with the fix",
    );
    obstacle(facts).or(sleeps)
}

/// Why programs at the kernel's functions are left out.
const NO_FENTRY: &str = "the kernel refuses programs at its functions (fentry)";

/// What stands in the way of all of it, with its remedy.
pub(crate) fn obstacle(facts: &KernelFacts) -> Option<&'static str> {
    if !facts.may_load {
        Some("may not load BPF programs: run as root, or with CAP_BPF and CAP_PERFMON")
    } else if !facts.btf {
        Some(
            "the kernel has no type information (/sys/kernel/btf/vmlinux): it needs \
             CONFIG_DEBUG_INFO_BTF, or /sys is not mounted",
        )
    } else if facts.lockdown == "confidentiality" {
        Some("kernel lockdown is at confidentiality: BPF may not read kernel memory")
    } else if !facts.host_pids {
        Some(
            "runs in a pid namespace of its own and would see only itself: use the host's \
             (hostPID: true)",
        )
    } else if !facts.task_iter {
        Some("the kernel has no task iterators (needs 5.8 or later)")
    } else if facts.kvm_types_in_module && !facts.kvm_types {
        Some(
            "only the module kvm has KVM's types: they need libbpf (--loader libbpf) and \
             CAP_SYS_ADMIN",
        )
    } else if !(facts.preempt_notifiers && facts.kvm_types) {
        Some(
            "the kernel was built without KVM or its types, or the module kvm was not loaded when \
             virtlens started and has them alone: load it and restart virtlens",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests;

//! What a tenant may see of a reading: the VMs of some namespaces, and nothing of others.
//!
//! | part | shown |
//! |---|---|
//! | VMs of pods in these namespaces | yes, with the exceptions below |
//! | other VMs, VMs without a known pod | no |
//! | node, time | yes: a pod's owner knows its node |
//! | places of the node's CPUs | yes: they are hardware, and vCPUs and mismatches refer to them |
//! | sources | name, state and age; no reasons, which may name files and other pods, and no durations, which grow with the number of threads on the node |
//! | losses, maps, programs | no: they count the whole node |
//! | CPU limits of a VM | those of its pod, and Kata's overhead cgroup, which belongs to one sandbox; not cgroups that may be shared |
//! | `vcpu_overlap` | the tenant's vCPUs and the pCPUs; not the names of other VMs |
//! | remedies with numbers of free CPUs | the general remedy of the check |
//!
//! Each function takes a value apart completely, so that a new field does not compile
//! before it is decided here whether tenants see it.

use std::sync::Arc;

use crate::snapshot::{Check, Finding, Mismatch, Misplaced, Quota, Snapshot, Source, Topology, Vm};
use crate::vocab::{MismatchKind, Scope};

/// Replaces the reason of a source that is down or limited.
const WITHHELD: &str = "shown only to readers of the whole node";

impl Snapshot {
    /// The reading as the owner of some namespaces may see it; `is_visible` decides on a
    /// namespace.
    #[must_use]
    pub fn for_tenant(&self, is_visible: impl Fn(&str) -> bool) -> Self {
        let Self {
            api_version,
            kind,
            time,
            clock_ns,
            reading_age_ns,
            node,
            host,
            sources,
            dropped: _,
            maps: _,
            programs: _,
            vms,
        } = self;
        let visible = vms
            .iter()
            .filter(|vm| vm.namespace.as_deref().is_some_and(&is_visible));
        Self {
            api_version,
            kind,
            time: time.clone(),
            clock_ns: *clock_ns,
            reading_age_ns: *reading_age_ns,
            node: node.clone(),
            host: Arc::clone(host),
            sources: sources.iter().map(source).collect(),
            dropped: Vec::new(),
            maps: Vec::new(),
            programs: Vec::new(),
            vms: visible.map(own).collect(),
        }
    }
}

fn source(shown: &Source) -> Source {
    let Source {
        name,
        up,
        mode,
        reason,
        duration_ns: _,
        age_ns,
    } = shown;
    let withheld = if reason.is_empty() { "" } else { WITHHELD };
    Source {
        name,
        up: *up,
        mode,
        reason: withheld.to_owned(),
        duration_ns: None,
        age_ns: *age_ns,
    }
}

/// A VM of the tenant. Most fields are values of its own threads, cgroups and memory.
fn own(vm: &Vm) -> Vm {
    let Vm {
        namespace,
        pod,
        uid,
        pod_spec,
        vm: name,
        vmm,
        runtime,
        cgroup_layout,
        pid,
        cgroup,
        running,
        roles,
        unattributed_cpu_ns,
        guest_ns,
        threads,
        vcpus,
        vcpu_count,
        workers,
        quota,
        limits,
        limit_cores,
        vcpu_limit_cores,
        throttle_durations,
        unapplied_limit,
        guest_nodes,
        moves,
        mmu,
        halts,
        topology,
        memory,
        pressure,
        ready,
        findings,
    } = vm;
    let of_pod = |levels: &[Quota]| {
        let own = levels.iter().filter(|level| is_of_pod(level.scope, vm));
        own.cloned().collect()
    };
    Vm {
        namespace: namespace.clone(),
        pod: pod.clone(),
        uid: uid.clone(),
        pod_spec: pod_spec.clone(),
        vm: Arc::clone(name),
        vmm,
        runtime: *runtime,
        cgroup_layout: *cgroup_layout,
        pid: *pid,
        cgroup: cgroup.clone(),
        running: *running,
        roles: roles.clone(),
        unattributed_cpu_ns: *unattributed_cpu_ns,
        guest_ns: *guest_ns,
        threads: threads.clone(),
        vcpus: vcpus.clone(),
        vcpu_count: *vcpu_count,
        workers: workers.clone(),
        quota: of_pod(quota),
        limits: of_pod(limits),
        limit_cores: *limit_cores,
        vcpu_limit_cores: *vcpu_limit_cores,
        throttle_durations: *throttle_durations,
        unapplied_limit: unapplied_limit.clone(),
        guest_nodes: *guest_nodes,
        moves: *moves,
        mmu: *mmu,
        halts: halts.clone(),
        topology: topology.as_ref().map(|shown| Arc::new(place(shown, vm))),
        memory: memory.clone(),
        pressure: *pressure,
        ready: ready.clone(),
        findings: findings
            .as_ref()
            .map(|all| all.iter().map(|one| one.for_tenant(vm.runtime)).collect()),
    }
}

/// Whether a cgroup with a limit belongs to the VM's pod alone.
fn is_of_pod(scope: Scope, vm: &Vm) -> bool {
    match scope {
        Scope::Pod
        | Scope::Sandbox
        | Scope::Container
        | Scope::Vcpu
        | Scope::Emulator
        | Scope::Iothread => true,
        // Kata creates one for each sandbox. Others are services of managers.
        Scope::Overhead => vm.runtime == Some("kata"),
        Scope::Machine => false,
    }
}

fn place(shown: &Topology, vm: &Vm) -> Topology {
    let Topology {
        guest,
        cpuset,
        pinned_vcpus,
        pairs,
        unknown,
        mismatches,
        misplaced_ns,
        interrupts,
    } = shown;
    Topology {
        guest: *guest,
        cpuset: cpuset.clone(),
        pinned_vcpus: *pinned_vcpus,
        pairs: *pairs,
        unknown: *unknown,
        mismatches: mismatches.iter().map(|one| misplaced(one, vm)).collect(),
        misplaced_ns: *misplaced_ns,
        interrupts: interrupts.clone(),
    }
}

fn misplaced(shown: &Misplaced, vm: &Vm) -> Misplaced {
    let Misplaced { mismatch, since } = shown;
    let Mismatch {
        kind,
        vcpus,
        pcpus,
        memory_nodes,
        evidence,
        remedy,
    } = mismatch;
    let check = Check::Place(*kind);
    Misplaced {
        mismatch: Mismatch {
            kind: *kind,
            vcpus: vcpus.clone(),
            pcpus: pcpus.clone(),
            memory_nodes: memory_nodes.clone(),
            evidence: evidence_of(check).map_or_else(|| evidence.clone(), str::to_owned),
            remedy: if has_free_cpus(check, vm.runtime) {
                check.about().remedy.to_owned()
            } else {
                remedy.clone()
            },
        },
        since: since.clone(),
    }
}

impl Finding {
    /// The finding as the owner of its VM's pod may see it, if this is the VM's runtime.
    #[must_use]
    pub fn for_tenant(&self, runtime: Option<&str>) -> Self {
        let Self {
            check,
            severity,
            evidence,
            remedy,
            excess,
        } = self;
        Self {
            check: *check,
            severity: *severity,
            evidence: evidence_of(*check).map_or_else(|| evidence.clone(), str::to_owned),
            remedy: if has_free_cpus(*check, runtime) {
                check.about().remedy.into()
            } else {
                remedy.clone()
            },
            excess: *excess,
        }
    }
}

/// The evidence for tenants, if the check's own evidence may name other VMs.
fn evidence_of(check: Check) -> Option<&'static str> {
    match check {
        Check::Place(kind) => match kind {
            MismatchKind::VcpuOverlap => Some(
                "vCPUs are pinned to the same pCPUs as other vCPUs, of this VM or of others; \
                 topology.mismatches has the numbers",
            ),
            MismatchKind::SmtSplit
            | MismatchKind::SmtShared
            | MismatchKind::NumaSplit
            | MismatchKind::LlcSplit
            | MismatchKind::HelperOnVcpu
            | MismatchKind::RemoteMemory => None,
        },
        // Values of the VM, its pod and its cgroups.
        Check::QuotaCapped
        | Check::LimitWithoutVm
        | Check::IoThrottled
        | Check::VhostSaturated
        | Check::VirtiofsdSaturated
        | Check::IothreadSaturated
        | Check::VcpusSaturated
        | Check::VcpuStarved
        | Check::HaltPollSpin
        | Check::OverheadHigh
        | Check::VcpusExceedQuota
        | Check::DefaultVcpusWithLimit
        | Check::ThreadsOutsidePod
        | Check::ReportingChurn
        | Check::MemoryKept
        | Check::DirtyLogging
        | Check::ThreadPoolIo => None,
    }
}

/// Whether the remedy may have the numbers of CPUs that other VMs leave free. With these
/// runtimes Kubernetes chooses the CPUs, and remedies are settings.
fn has_free_cpus(check: Check, runtime: Option<&str>) -> bool {
    matches!(check, Check::Place(_)) && !matches!(runtime, Some("kata" | "kubevirt"))
}

//! Remedies for mismatches: commands with the numbers of vCPUs and pCPUs where the VM's
//! manager takes pins, settings where Kubernetes chooses the CPUs.
//!
//! | runtime | remedy |
//! |---|---|
//! | libvirt | `virsh vcpupin`, `emulatorpin`, `iothreadpin`, `numatune` |
//! | `KubeVirt` | fields of `cpu` in the `VirtualMachine`, and the kubelet's managers |
//! | Kata | `enable_vcpus_pinning`, and the kubelet's managers |
//! | any other | `taskset -pc`, `migratepages` |
//!
//! Sources: virsh(1) of libvirt 11; Kubernetes 1.34, `pkg/kubelet/cm/cpumanager`
//! (`policy_options.go`); Kata 4.1: `checkVCPUsPinning` in
//! `src/runtime/virtcontainers/sandbox.go`, names of annotations in
//! `src/runtime/virtcontainers/pkg/annotations` and `src/libs/kata-types/src/annotations`;
//! `KubeVirt` 1.6: `staging/src/kubevirt.io/api/core/v1/schema.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::judge::placement::found::{Cause, Found};
use crate::judge::placement::location::{LocatedHost, LocatedVm};
use crate::judge::placement::plan::{FreeCores, Plan};
use crate::judge::placement::settings;
use crate::judge::placement::types::{HelperPlacement, VcpuPlacement, VmPlacement};
use crate::judge::runtime::Runtime;
use crate::judge::shell::quoted;
use crate::snapshot::Mismatch;
use crate::vocab::{CpuSet, MismatchKind, Role};

/// Maximum number of commands in a remedy.
const COMMANDS_MAX: usize = 4;

/// Adds to each mismatch of VM `index` the remedy, which is the same for all of a kind.
pub(super) fn add(
    located: &LocatedHost<'_>,
    free: &mut FreeCores<'_>,
    index: usize,
    found: Vec<Found<'_>>,
) -> Vec<Mismatch> {
    if found.is_empty() {
        return Vec::new();
    }
    let vm = located.vm(index);
    let plan = if takes_pins(vm.placement.runtime) {
        plan(located, free, index, &found)
    } else {
        None
    };
    let advice = Advice {
        located,
        vm,
        plan,
        helper_cpus: free.for_helpers(index),
    };
    let remedy = |kind| {
        let of_kind = found.iter().filter(|one| one.kind == kind);
        (kind, advice.remedy(kind, &of_kind.collect::<Vec<_>>()))
    };
    let kinds: BTreeSet<MismatchKind> = found.iter().map(|one| one.kind).collect();
    let remedies: BTreeMap<_, _> = kinds.into_iter().map(remedy).collect();
    let mismatch = |one: Found<'_>| Mismatch {
        kind: one.kind,
        remedy: remedies.get(&one.kind).cloned().unwrap_or_default(),
        vcpus: one.vcpus,
        pcpus: one.pcpus,
        memory_nodes: match one.cause {
            Cause::Memory { from, .. } => from,
            _ => Vec::new(),
        },
        evidence: one.evidence,
    };
    found.into_iter().map(mismatch).collect()
}

/// A plan for the vCPUs that have to be pinned elsewhere. If it leaves vCPUs on several
/// nodes or caches, a plan for the other mismatches alone.
fn plan(
    located: &LocatedHost<'_>,
    free: &mut FreeCores<'_>,
    index: usize,
    found: &[Found<'_>],
) -> Option<Plan> {
    let by_pins = || {
        let causes = found.iter();
        causes.filter(|one| matches!(one.cause, Cause::Pins | Cause::Scheduler))
    };
    let is_split =
        |one: &&Found<'_>| matches!(one.kind, MismatchKind::NumaSplit | MismatchKind::LlcSplit);
    let vcpus = |one: &Found<'_>| one.vcpus.clone();
    let all = free.plan(index, &by_pins().flat_map(vcpus).collect());
    let cures = |plan: &Plan| by_pins().all(|one| plan.cures(located.host, one));
    let plan = all.filter(cures).or_else(|| {
        let others = by_pins().filter(|one| !is_split(one));
        free.plan(index, &others.flat_map(vcpus).collect())
    })?;
    free.suggest(&plan);
    Some(plan)
}

/// What the remedies of one VM are made of.
struct Advice<'a> {
    located: &'a LocatedHost<'a>,
    vm: LocatedVm<'a>,
    /// `None` if there are too few free cores, or Kubernetes chooses the CPUs.
    plan: Option<Plan>,
    /// Free CPUs for helper threads.
    helper_cpus: Option<CpuSet>,
}

impl Advice<'_> {
    /// The remedy for all mismatches of a kind.
    fn remedy(&self, kind: MismatchKind, found: &[&Found<'_>]) -> String {
        let vm = self.vm.placement;
        let by_pins = found.iter().all(|one| matches!(one.cause, Cause::Pins));
        let takes_pins = takes_pins(vm.runtime);
        let setting = || settings::of(kind, vm, self.threads(), by_pins);
        match found.first().map(|one| &one.cause) {
            Some(Cause::Memory { from, to }) if !takes_pins => {
                format!("{}; until then: {}", setting(), migratepages(vm, from, to))
            }
            _ if !takes_pins => setting(),
            Some(Cause::Memory { from, to }) => self.move_memory(from, to),
            Some(Cause::Helpers(_)) => self.move_helpers(found),
            _ => {
                let is_node = |one: &&&Found<'_>| matches!(one.cause, Cause::Nodes(_));
                let (nodes, pins): (Vec<&Found<'_>>, Vec<_>) = found.iter().partition(is_node);
                let pin = (!pins.is_empty()).then(|| self.pin(kind, &pins, by_pins));
                let confine = (!nodes.is_empty()).then(|| self.confine(&nodes));
                let parts: Vec<String> = pin.into_iter().chain(confine).collect();
                parts.join("; ")
            }
        }
    }

    /// Threads per core of the host.
    fn threads(&self) -> usize {
        self.located.host.threads_per_core().unwrap_or(1)
    }

    fn is_libvirt(&self) -> bool {
        self.vm.placement.runtime == Runtime::Libvirt
    }

    /// Pins vCPUs to the targets of the plan.
    fn pin(&self, kind: MismatchKind, found: &[&Found<'_>], by_pins: bool) -> String {
        let ids: BTreeSet<u32> = found.iter().flat_map(|one| &one.vcpus).copied().collect();
        let host = self.located.host;
        let moves = self.plan.as_ref().map(|plan| {
            let cures = found.iter().all(|one| plan.cures(host, one));
            let moves = cures.then(|| plan.moves(&self.vm, &ids));
            moves.unwrap_or_default()
        });
        let pins = match moves {
            Some(moves) if !moves.is_empty() => {
                let pin =
                    |(vcpu, cpu): (&VcpuPlacement, u32)| self.pin_vcpu(vcpu, &cpu.to_string());
                let pins = commands(moves.into_iter().map(pin));
                format!("{}: {}", purpose_of_pins(kind), self.kept(pins))
            }
            None if by_pins => {
                let all = if self.is_libvirt() {
                    "r".to_owned()
                } else {
                    host.online().to_string()
                };
                let vcpus = self.vm.placement.vcpus.iter();
                let affected = vcpus.filter(|vcpu| ids.contains(&vcpu.id));
                let unpin = commands(affected.map(|vcpu| self.pin_vcpu(vcpu, &all)));
                format!("too few host cores are free for other pins; remove the pins: {unpin}")
            }
            _ => {
                "too few host cores are free to pin the vCPUs there; move other VMs to another host"
                    .into()
            }
        };
        match settings::guest_topology(kind, self.vm.placement, self.threads(), by_pins) {
            Some(setting) => format!("{pins}; or {setting}"),
            None => pins,
        }
    }

    /// Confines vCPUs to a node that has room for them.
    fn confine(&self, found: &[&Found<'_>]) -> String {
        let confined = found.iter().flat_map(|one| {
            let cpus = match one.cause {
                Cause::Nodes(node) => self.located.host.node_cpus(node),
                _ => None,
            };
            let vcpus = self.vm.placement.vcpus.iter();
            let affected = vcpus.filter(|vcpu| one.vcpus.contains(&vcpu.id));
            affected.filter_map(move |vcpu| Some(self.pin_vcpu(vcpu, &cpus?.to_string())))
        });
        format!(
            "allow the vCPUs only the CPUs of one NUMA node: {}",
            self.kept(commands(confined))
        )
    }

    fn move_helpers(&self, found: &[&Found<'_>]) -> String {
        let Some(cpus) = &self.helper_cpus else {
            return "no host core is free of pinned vCPUs; pin the vCPUs to fewer cores, or move \
                    VMs to another host"
                .into();
        };
        let helpers = found.iter().flat_map(|one| match &one.cause {
            Cause::Helpers(helpers) => helpers.as_slice(),
            _ => &[],
        });
        let mut all: Vec<String> = Vec::new();
        for helper in helpers {
            let command = self.pin_helper(helper, cpus);
            if !all.contains(&command) {
                all.push(command);
            }
        }
        format!(
            "pin the threads to a core without pinned vCPUs: {}",
            self.kept(commands(all.into_iter()))
        )
    }

    fn move_memory(&self, from: &[u32], to: &[u32]) -> String {
        let now = migratepages(self.vm.placement, from, to);
        if !self.is_libvirt() {
            return format!("move the memory to the vCPUs: {now}");
        }
        format!(
            "move the memory to the vCPUs: {now}; for the next start: virsh numatune {} --mode \
             strict --nodeset {} --config",
            quoted(&self.vm.placement.name),
            numbers(to)
        )
    }

    fn pin_vcpu(&self, vcpu: &VcpuPlacement, cpus: &str) -> String {
        if self.is_libvirt() {
            let domain = quoted(&self.vm.placement.name);
            format!("virsh vcpupin {domain} {} {cpus} --live", vcpu.number)
        } else {
            format!("taskset -pc {cpus} {}", vcpu.tid)
        }
    }

    /// vhost workers are in libvirt's cgroup of the emulator and get its CPUs.
    fn pin_helper(&self, helper: &HelperPlacement, cpus: &CpuSet) -> String {
        let domain = quoted(&self.vm.placement.name);
        match (self.is_libvirt(), helper.role, iothread_id(helper)) {
            (true, Role::Iothread, Some(id)) => {
                format!("virsh iothreadpin {domain} {id} {cpus} --live")
            }
            (true, Role::Emulator | Role::Vhost, _) => {
                format!("virsh emulatorpin {domain} {cpus} --live")
            }
            _ => format!("taskset -pc {cpus} {}", helper.tid),
        }
    }

    /// libvirt's pins of a running domain end with it.
    fn kept(&self, commands: String) -> String {
        if self.is_libvirt() {
            format!("{commands} (add --config to keep the pins after a restart)")
        } else {
            commands
        }
    }
}

/// Whether an administrator of the host pins the threads of the VM. Kubernetes undoes
/// pins that it did not choose.
fn takes_pins(runtime: Runtime) -> bool {
    matches!(runtime, Runtime::Libvirt | Runtime::Unknown)
}

fn purpose_of_pins(kind: MismatchKind) -> &'static str {
    match kind {
        MismatchKind::SmtSplit => "pin the threads of a guest core to one free host core",
        MismatchKind::SmtShared => "pin each guest core to a free host core",
        MismatchKind::NumaSplit => "pin the vCPUs to free cores of one NUMA node",
        MismatchKind::LlcSplit => "pin the vCPUs to free cores of one last-level cache",
        _ => "pin each vCPU to a free pCPU",
    }
}

/// libvirt's number of an iothread: QEMU names its thread "IO iothread1" (`iothread.c`),
/// after the alias that libvirt gives it (`qemu_alias.c`).
fn iothread_id(helper: &HelperPlacement) -> Option<u32> {
    helper
        .name
        .as_str()?
        .strip_prefix("IO iothread")?
        .parse()
        .ok()
}

fn migratepages(vm: &VmPlacement, from: &[u32], to: &[u32]) -> String {
    format!("migratepages {} {} {}", vm.pid, numbers(from), numbers(to))
}

/// The first commands, and the number of the others.
fn commands(all: impl Iterator<Item = String>) -> String {
    let mut all = all;
    let shown: Vec<String> = all.by_ref().take(COMMANDS_MAX).collect();
    let text = shown.join("; ");
    match all.count() {
        0 => text,
        more => format!("{text}; and {more} more like these"),
    }
}

/// "0,2".
fn numbers(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    numbers.join(",")
}

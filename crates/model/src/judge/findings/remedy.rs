//! Remedies for limits, by the runtime that set them: a setting of one runtime has no
//! effect in another, and Kata's settings have different effects on cgroup v1 and v2.
//!
//! | runtime | `sandbox_cgroup_only=false` moves out of the pod's limit |
//! |---|---|
//! | Kata, cgroupfs, cgroup v1 | all but the vCPUs |
//! | Kata, cgroupfs, cgroup v2 | the shim and virtiofsd: a tid in `cgroup.procs` moves its whole process, including vhost |
//! | Kata's runtime-rs, systemd | the shim and virtiofsd |
//! | Kata's Go runtime, systemd | all threads; the limit then applies to none |
//! | Kata with Dragonball | nothing: it is one process |
//!
//! Kata 4.1: `src/runtime/virtcontainers/sandbox.go`, `src/runtime/pkg/resourcecontrol`,
//! `src/runtime-rs/crates/resource/src/cgroups`. All rows except cgroup v1 were verified
//! on a node; that row follows Kata's documentation (`docs/design/host-cgroups.md`).

use std::borrow::Cow;

use super::text::thousandths;
use crate::judge::runtime::Runtime;
use crate::judge::shell::quoted;
use crate::snapshot::{Check, Vm};
use crate::vocab::{Role, Scope};

/// Cgroup driver of the pods' cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Systemd,
    Cgroupfs,
    Unknown,
}

/// The setup of a VM, as observed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    vm: &'a Vm,
    runtime: Runtime,
    driver: Driver,
    is_v1: bool,
}

/// The remedy of a finding.
pub(super) type Remedy = Cow<'static, str>;

impl<'a> Setup<'a> {
    /// The setup of a VM on a host whose cpu controller is on `cgroup` ("v1" or "v2").
    pub(super) fn of(vm: &'a Vm, cgroup: &str) -> Self {
        let path = vm.cgroup.as_deref().unwrap_or_default();
        let driver = if path.contains(".slice") {
            Driver::Systemd
        } else if path.contains("/kubepods/") || path.contains("/kata_") {
            Driver::Cgroupfs
        } else {
            Driver::Unknown
        };
        Self {
            vm,
            runtime: Runtime::of(vm),
            driver,
            is_v1: cgroup == "v1",
        }
    }

    /// Remedy for a limit on `cgroup` that caps the VM. `overhead_is_high`: threads other
    /// than vCPUs use a large part of the limit.
    pub(super) fn raise(&self, scope: Scope, cgroup: &str, overhead_is_high: bool) -> Remedy {
        if self.runtime.is_kata() && scope != Scope::Machine {
            return if overhead_is_high {
                "raise overhead.podFixed.cpu of the RuntimeClass, which kubelet adds to the limit, \
                 or resources.limits.cpu of the pod's containers"
                    .into()
            } else {
                "raise resources.limits.cpu of the pod's containers".into()
            };
        }
        match self.runtime {
            Runtime::KubeVirt => "raise resources.limits.cpu of the VirtualMachine's domain".into(),
            Runtime::Libvirt if !is_shared(cgroup) => self.schedinfo(cgroup),
            _ => match unit_of(cgroup).filter(|_| scope == Scope::Machine) {
                Some(unit) => {
                    let unit = quoted(unit);
                    format!("raise the limit: systemctl set-property {unit} CPUQuota=PERCENT")
                        .into()
                }
                None => Check::QuotaCapped.about().remedy.into(),
            },
        }
    }

    /// libvirt's parameter of a limit, by the cgroup that has it. The limit of the
    /// domain's own cgroup applies to all its threads.
    fn schedinfo(&self, cgroup: &str) -> Remedy {
        let name = cgroup.rsplit('/').next().unwrap_or_default();
        let parameter = if name.starts_with("vcpu") {
            "vcpu_quota"
        } else if name.starts_with("iothread") {
            "iothread_quota"
        } else if name == "emulator" {
            "emulator_quota"
        } else {
            "global_quota"
        };
        let vm = quoted(&self.vm.vm);
        format!("raise the limit, or remove it: virsh schedinfo {vm} --live --set {parameter}=-1")
            .into()
    }

    /// Remedy for I/O threads with these `roles` that the limit of `cgroup` throttles.
    pub(super) fn free_io(&self, scope: Scope, cgroup: &str, roles: &[Role]) -> Remedy {
        let raise = self.raise(scope, cgroup, true);
        // Moving threads out helps only if all are still in the pod's cgroup.
        let is_inside = self.vm.cgroup_layout == Some("pod");
        if !self.runtime.is_kata() || !is_inside || scope == Scope::Machine {
            return raise;
        }
        let only_virtiofsd = roles.iter().all(|role| *role == Role::Virtiofsd);
        let moves = match (self.runtime, self.driver, self.is_v1) {
            (Runtime::KataGo, Driver::Cgroupfs, true) => Some("all threads but the vCPUs'"),
            (Runtime::KataGo, Driver::Cgroupfs, false) | (Runtime::KataRs, Driver::Systemd, _)
                if only_virtiofsd =>
            {
                Some("virtiofsd")
            }
            _ => None,
        };
        match moves {
            Some(what) => format!(
                "{raise}; or set sandbox_cgroup_only=false in Kata's configuration.toml, which \
                 moves {what} out of the pod's limit and of its accounting"
            )
            .into(),
            None => raise,
        }
    }

    /// Remedy for threads that use `cores` outside the pod.
    pub(super) fn take_in(&self, cores: f64) -> Remedy {
        if self.runtime.is_kata() {
            return format!(
                "set sandbox_cgroup_only=true in Kata's configuration.toml, and add {cores:.2} \
                 cores to overhead.podFixed.cpu of the RuntimeClass, since the pod's limit then \
                 holds these threads too"
            )
            .into();
        }
        Check::ThreadsOutsidePod.about().remedy.into()
    }

    /// Remedy for more vCPUs than a limit of `cores` can run.
    pub(super) fn fewer_vcpus(&self, cores: f64) -> Remedy {
        match self.runtime {
            Runtime::KataGo => self.fractional_default(cores),
            Runtime::KubeVirt => "lower cpu.cores of the VirtualMachine's domain, or raise its \
                                  resources.limits.cpu"
                .into(),
            Runtime::Libvirt => {
                let (vm, vcpus) = (quoted(&self.vm.vm), cores.ceil());
                format!("virsh setvcpus {vm} {vcpus} --live, or raise the limit").into()
            }
            _ => Check::VcpusExceedQuota.about().remedy.into(),
        }
    }

    /// Kata's Go runtime adds `default_vcpus` to the limit of the containers and rounds
    /// the sum up (`src/runtime/pkg/oci/utils.go`, `CalculateSandboxSizing`;
    /// `virtcontainers/sandbox.go`). A fraction that fits into the rest of the last core
    /// therefore adds no vCPU.
    fn fractional_default(&self, cores: f64) -> Remedy {
        let spec = self.vm.pod_spec.as_ref();
        let millis = spec.and_then(|spec| spec.cpu_limit_millis);
        let asked = millis.map_or(cores, thousandths);
        let left = ((asked.ceil() - asked) * 10.0 + 1e-6).floor() / 10.0;
        if left < 0.1 {
            return "raise resources.limits.cpu of the pod's containers: Kata's Go runtime adds \
                    default_vcpus to it for the number of vCPUs"
                .into();
        }
        format!(
            "set default_vcpus={left:.1} in Kata's configuration.toml, or by the pod's annotation \
             io.katacontainers.config.hypervisor.default_vcpus: the Go runtime adds it to the \
             limit and rounds up, so that 1 makes one vCPU too many"
        )
        .into()
    }

    /// Remedy for vCPUs that are all busy.
    pub(super) fn more_vcpus(&self) -> Remedy {
        match self.runtime {
            Runtime::KubeVirt => "raise cpu.sockets of the VirtualMachine's domain".into(),
            Runtime::Libvirt => {
                let (vm, vcpus) = (quoted(&self.vm.vm), self.vm.vcpu_count.usable() + 1);
                format!("virsh setvcpus {vm} {vcpus} --live, up to the domain's maximum").into()
            }
            _ => Check::VcpusSaturated.about().remedy.into(),
        }
    }
}

/// Whether other VMs can be in the cgroup too, as in `machine.slice`: libvirt sets no
/// limit there.
fn is_shared(cgroup: &str) -> bool {
    [".slice", ".service"]
        .iter()
        .any(|kind| cgroup.ends_with(kind))
}

/// The systemd unit of a cgroup: the innermost level that is a unit.
fn unit_of(cgroup: &str) -> Option<&str> {
    let is_unit = |name: &&str| {
        let kinds = [".service", ".scope", ".slice"];
        kinds.iter().any(|kind| name.ends_with(kind))
    };
    cgroup.rsplit('/').find(is_unit)
}

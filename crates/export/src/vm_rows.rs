//! The metric families with series for every VM.

use std::fmt;

use virtlens_model::snapshot::{Quota, Vm};

use crate::family::{Family, Rows};
use crate::kind::Kind;
use crate::profile::Profile;
use crate::samples::known;

pub(crate) const VM_FAMILIES: &[Family] = &[
    Family {
        name: "virtlens_vm_info",
        kind: Kind::Info,
        profile: Some(Profile::Minimal),
        unit: None,
        help: "Identity of the VM: uid of its pod, VMM, runtime, cgroup layout (all threads in \
               one cgroup: pod, machine; some in an overhead cgroup: split; all outside the \
               pod's cgroup: stray), with a known pod name its runtime class and \
               VirtualMachineInstance, and its node.",
        own_labels: &[
            "uid",
            "vmm",
            "runtime",
            "cgroup_layout",
            "runtime_class",
            "vmi",
            "node",
        ],
        rows: Rows::Vm(|vm, rows| {
            let node = rows.node;
            let spec = vm.pod_spec.as_ref();
            rows.info(&[
                (&vm.uid).into(),
                vm.vmm.into(),
                (&vm.runtime).into(),
                (&vm.cgroup_layout).into(),
                (&spec.and_then(|spec| spec.runtime_class.as_ref())).into(),
                (&spec.and_then(|spec| spec.vmi.as_ref())).into(),
                node.into(),
            ])
        }),
    },
    Family {
        name: "virtlens_cpu_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Minimal),
        unit: Some("seconds"),
        help: "Host CPU time of the VM's threads and its pod's by role, living and ended; time \
               without a role is other, absent while there is none.",
        own_labels: &["role"],
        rows: Rows::Vm(|vm, rows| {
            vm.roles
                .iter()
                .try_for_each(|role| rows.seconds(&[role.role.name().into()], role.cpu_ns))?;
            let other_ns = Some(vm.unattributed_cpu_ns).filter(|ns| *ns > 0);
            known(other_ns, |ns| rows.seconds(&[OTHER_ROLE.into()], ns))
        }),
    },
    Family {
        name: "virtlens_cpu_wait_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Time in which threads of the role were runnable but did not run: waiting for a \
               CPU, or throttled.",
        own_labels: &["role"],
        rows: Rows::Vm(|vm, rows| {
            vm.roles.iter().try_for_each(|role| {
                known(role.wait_ns, |ns| {
                    rows.seconds(&[role.role.name().into()], ns)
                })
            })
        }),
    },
    Family {
        name: "virtlens_threads",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Living threads of the VM by role.",
        own_labels: &["role"],
        rows: Rows::Vm(|vm, rows| {
            vm.roles
                .iter()
                .try_for_each(|role| rows.count(&[role.role.name().into()], role.threads.into()))
        }),
    },
    Family {
        name: "virtlens_threads_outside_pod",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "Living threads of the VM in a cgroup outside of its pod's cgroup, where the \
               pod's limits do not apply; absent while there are none.",
        own_labels: &["role"],
        rows: Rows::Vm(|vm, rows| {
            vm.roles.iter().try_for_each(|role| {
                known(role.outside_pod.filter(|count| *count > 0), |count| {
                    rows.count(&[role.role.name().into()], count.into())
                })
            })
        }),
    },
    Family {
        name: "virtlens_vcpu_cpu_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Host CPU time of the threads that ran the vCPU; vcpu is the APIC id that the \
               guest sees.",
        own_labels: &["vcpu"],
        rows: Rows::Vm(|vm, rows| {
            vm.vcpus
                .iter()
                .try_for_each(|vcpu| rows.seconds(&[vcpu.id.into()], vcpu.cpu_ns))
        }),
    },
    Family {
        name: "virtlens_vcpu_wait_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Time in which the vCPU was runnable but did not run, which the guest sees as \
               steal: waiting for a CPU, or throttled.",
        own_labels: &["vcpu"],
        rows: Rows::Vm(|vm, rows| {
            vm.vcpus
                .iter()
                .try_for_each(|vcpu| known(vcpu.wait_ns, |ns| rows.seconds(&[vcpu.id.into()], ns)))
        }),
    },
    Family {
        name: "virtlens_vcpu_timeslices_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "How often the scheduler put vCPUs of the VM on a CPU. The wait time of role vcpu \
               divided by it is the mean wait before a vCPU ran.",
        own_labels: &[],
        rows: Rows::Vm(|_, rows| known(rows.vcpus().timeslices, |count| rows.count(&[], count))),
    },
    Family {
        name: "virtlens_vcpu_involuntary_switches_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: None,
        help: "How often vCPUs of the VM left their CPU although they were runnable: preempted \
               by another thread, or throttled.",
        own_labels: &[],
        rows: Rows::Vm(|_, rows| {
            known(rows.vcpus().involuntary_switches, |count| {
                rows.count(&[], count)
            })
        }),
    },
    Family {
        name: "virtlens_guest_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Full),
        unit: Some("seconds"),
        help: "Time of all vCPUs in guest mode; an estimate, because most kernels sample it by \
               the tick.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| known(vm.guest_ns, |ns| rows.seconds(&[], ns))),
    },
    Family {
        name: "virtlens_worker_cpu_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Host CPU time of each I/O worker (vhost, iothread, virtiofsd); part of its \
               role. Workers are numbered in the order of their start.",
        own_labels: &["role", "worker"],
        rows: Rows::Vm(|vm, rows| {
            vm.workers.iter().try_for_each(|worker| {
                rows.seconds(
                    &[worker.role.name().into(), worker.worker.into()],
                    worker.cpu_ns,
                )
            })
        }),
    },
    Family {
        name: "virtlens_vcpus_online",
        kind: Kind::Gauge,
        profile: Some(Profile::Default),
        unit: None,
        help: "vCPUs that KVM holds for the VM, those that never ran and unplugged ones included; \
               absent if unknown.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            known(vm.vcpu_count.online, |online| {
                rows.count(&[], online.into())
            })
        }),
    },
    Family {
        name: "virtlens_vcpus_parked",
        kind: Kind::Gauge,
        profile: Some(Profile::Default),
        unit: None,
        help: "vCPUs in virtlens_vcpus_online that ran and have no thread any more: unplugged \
               ones. Absent while there are none.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| {
            let parked = vm.vcpu_count.parked.filter(|parked| *parked > 0);
            known(parked, |parked| rows.count(&[], parked.into()))
        }),
    },
    Family {
        name: "virtlens_vcpus_seen",
        kind: Kind::Gauge,
        profile: Some(Profile::Full),
        unit: None,
        help: "vCPUs of the VM with a thread that was seen to run them.",
        own_labels: &[],
        rows: Rows::Vm(|vm, rows| rows.count(&[], vm.vcpu_count.seen.into())),
    },
    Family {
        name: "virtlens_cfs_quota_cores",
        kind: Kind::Gauge,
        profile: Some(Profile::Default),
        unit: Some("cores"),
        help: "CPU limit of the binding cgroup of the scope (the one throttled in most recent \
               periods). Scopes: pod, sandbox (Kata's, inside the pod's), container, overhead \
               (outside of the pod's or the machine's), machine (without a pod), and libvirt's \
               vcpu, emulator and iothread inside it.",
        own_labels: &["scope"],
        rows: Rows::Vm(|vm, rows| {
            each_quota(vm, |quota| {
                known(quota.cores, |cores| {
                    rows.real(&[quota.scope.name().into()], cores)
                })
            })
        }),
    },
    Family {
        name: "virtlens_cfs_periods_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: None,
        help: "Periods of the limit of virtlens_cfs_quota_cores in which a thread was runnable.",
        own_labels: &["scope"],
        rows: Rows::Vm(|vm, rows| {
            each_quota(vm, |quota| {
                rows.count(&[quota.scope.name().into()], quota.periods)
            })
        }),
    },
    Family {
        name: "virtlens_cfs_throttled_periods_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: None,
        help: "Periods of the limit of virtlens_cfs_quota_cores in which it throttled threads \
               on at least one CPU.",
        own_labels: &["scope"],
        rows: Rows::Vm(|vm, rows| {
            each_quota(vm, |quota| {
                rows.count(&[quota.scope.name().into()], quota.throttled_periods)
            })
        }),
    },
    Family {
        name: "virtlens_cfs_throttled_seconds_total",
        kind: Kind::Counter,
        profile: Some(Profile::Default),
        unit: Some("seconds"),
        help: "Time throttled by the limit of virtlens_cfs_quota_cores, summed over CPUs, so \
               it can exceed wall time.",
        own_labels: &["scope"],
        rows: Rows::Vm(|vm, rows| {
            each_quota(vm, |quota| {
                rows.seconds(&[quota.scope.name().into()], quota.throttled_ns)
            })
        }),
    },
];

/// The value of the label `role` for CPU time without a role.
const OTHER_ROLE: &str = "other";

/// Calls `encode` once for each scope. A path can have two levels of one scope; `limits`
/// holds only the binding one, because a scope can have only one series.
fn each_quota(vm: &Vm, encode: impl FnMut(&Quota) -> fmt::Result) -> fmt::Result {
    vm.limits.iter().try_for_each(encode)
}

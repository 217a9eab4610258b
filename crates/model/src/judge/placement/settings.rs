//! Settings that prevent mismatches: of the kubelet, Kata, `KubeVirt` and libvirt.

use crate::judge::placement::types::VmPlacement;
use crate::judge::runtime::Runtime;
use crate::judge::shell::quoted;
use crate::vocab::MismatchKind;

/// The setting for a VM whose CPUs Kubernetes chooses. `threads` is the host's number of
/// threads per core; `by_pins` is whether the affected vCPUs are pinned.
pub(super) fn of(kind: MismatchKind, vm: &VmPlacement, threads: usize, by_pins: bool) -> String {
    let is_kata = vm.runtime.is_kata();
    match kind {
        MismatchKind::SmtSplit | MismatchKind::SmtShared if !is_kata => format!(
            "VirtualMachine: {} under spec.template.spec.domain.cpu; kubelet: cpuManagerPolicy: \
             static with cpuManagerPolicyOptions full-pcpus-only: \"true\"",
            with_threads(vm.vcpus.len(), threads)
        ),
        MismatchKind::SmtSplit if by_pins => format!(
            "{}, since Kata pins the n-th vCPU to the n-th CPU of the pod, whatever the guest's \
             topology",
            pinning(vm.runtime, false)
        ),
        MismatchKind::SmtSplit => format!(
            "{EXCLUSIVE} with cpuManagerPolicyOptions full-pcpus-only: \"true\", which gives the pod \
             whole cores"
        ),
        MismatchKind::SmtShared if by_pins => format!(
            "{}, so that the scheduler can use idle cores; or kubelet: cpuManagerPolicyOptions \
             distribute-cpus-across-cores: \"true\" (alpha since Kubernetes 1.31), which gives \
             the pod one thread per core",
            pinning(vm.runtime, false)
        ),
        MismatchKind::SmtShared => format!(
            "{EXCLUSIVE} with cpuManagerPolicyOptions distribute-cpus-across-cores: \"true\" \
             (alpha since Kubernetes 1.31); {}",
            pinning(vm.runtime, true)
        ),
        MismatchKind::VcpuOverlap if is_kata => {
            format!(
                "{EXCLUSIVE}; without exclusive CPUs, {}",
                pinning(vm.runtime, false)
            )
        }
        MismatchKind::VcpuOverlap => {
            "VirtualMachine: dedicatedCpuPlacement: true under spec.template.spec.domain.cpu; \
             kubelet: cpuManagerPolicy: static, which gives each pinned vCPU an exclusive CPU"
                .into()
        }
        MismatchKind::NumaSplit => format!(
            "{}; kubelet: cpuManagerPolicy: static, memoryManagerPolicy: Static and \
             topologyManagerPolicy: single-numa-node",
            if is_kata {
                GUARANTEED
            } else {
                "VirtualMachine: dedicatedCpuPlacement: true (with numa: \
                 {guestMappingPassthrough: {}} and hugepages the guest sees the nodes instead) \
                 under spec.template.spec.domain.cpu"
            }
        ),
        MismatchKind::LlcSplit => "kubelet: cpuManagerPolicy: static with cpuManagerPolicyOptions \
             prefer-align-cpus-by-uncorecache: \"true\" (since Kubernetes 1.32)"
            .into(),
        MismatchKind::HelperOnVcpu if is_kata => format!(
            "{}, since Kata runs the VMM's other threads on the same CPUs of the pod",
            pinning(vm.runtime, false)
        ),
        MismatchKind::HelperOnVcpu => {
            "VirtualMachine: isolateEmulatorThread: true under spec.template.spec.domain.cpu, \
             which reserves a CPU for the VMM's other threads"
                .into()
        }
        MismatchKind::RemoteMemory => {
            "kubelet: memoryManagerPolicy: Static with reservedMemory, and \
             topologyManagerPolicy: single-numa-node"
                .into()
        }
    }
}

/// The topology of a libvirt guest that fits the placement of its vCPUs. A guest that the
/// scheduler places never fits siblings.
pub(super) fn guest_topology(
    kind: MismatchKind,
    vm: &VmPlacement,
    threads: usize,
    by_pins: bool,
) -> Option<String> {
    let threads = match kind {
        MismatchKind::SmtSplit => 1,
        MismatchKind::SmtShared if by_pins => threads,
        _ => return None,
    };
    let domain = quoted(&vm.name);
    (vm.runtime == Runtime::Libvirt).then(|| {
        format!(
            "set threads='{threads}' in the <topology> of <cpu> (virsh edit {domain}) and restart \
             the domain"
        )
    })
}

const GUARANTEED: &str = "run the pod in the Guaranteed QoS class with a whole number of CPUs";

const EXCLUSIVE: &str = "run the pod in the Guaranteed QoS class with a whole number of CPUs; \
                         kubelet: cpuManagerPolicy: static";

/// Kata's switch for pins, and its annotation, whose name depends on the runtime.
fn pinning(runtime: Runtime, enable: bool) -> String {
    let annotation = match runtime {
        Runtime::KataGo => ", or annotation io.katacontainers.enable_vcpus_pinning",
        Runtime::KataRs => ", or annotation io.katacontainers.config.runtime.enable_vcpus_pinning",
        _ => "",
    };
    format!("Kata: enable_vcpus_pinning={enable} under [runtime] in configuration.toml{annotation}")
}

/// `KubeVirt`'s topology of a guest that has all threads of the host's cores.
fn with_threads(vcpus: usize, threads: usize) -> String {
    if vcpus > 0 && vcpus.is_multiple_of(threads) {
        let cores = vcpus / threads;
        format!("dedicatedCpuPlacement: true, sockets: 1, cores: {cores} and threads: {threads}")
    } else {
        format!(
            "dedicatedCpuPlacement: true and threads: {threads}, with a multiple of {threads} \
             vCPUs"
        )
    }
}

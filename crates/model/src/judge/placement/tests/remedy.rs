//! Remedies: exact commands for libvirt and for VMs without a manager, settings for
//! Kubernetes.

use super::commands::commands;
use super::{Guest, ONE_NODE, TWO_NODES, floating, judge_one, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::judge::runtime::Runtime;
use crate::vocab::MismatchKind::{
    HelperOnVcpu, LlcSplit, NumaSplit, RemoteMemory, SmtShared, SmtSplit, VcpuOverlap,
};
use crate::vocab::topology::synthetic::Machine;
use crate::vocab::{Comm, MismatchKind, Role};

const KEEP: &str = " (add --config to keep the pins after a restart)";

/// A VM on [`TWO_NODES`] with this mismatch alone.
fn vm_with(kind: MismatchKind) -> VmPlacement {
    let pinned = |guest, masks: &[&str]| vm("a", guest, masks).helper(Role::Emulator, "31");
    match kind {
        SmtSplit => pinned(Guest(1, 1, 2), &["0", "2"]),
        SmtShared => pinned(Guest(1, 2, 1), &["0", "1"]),
        VcpuOverlap => pinned(Guest(1, 2, 1), &["4", "4"]),
        NumaSplit => pinned(Guest(1, 4, 1), &["0", "2", "16", "18"]),
        LlcSplit => pinned(Guest(1, 4, 1), &["0", "2", "8", "10"]),
        HelperOnVcpu => vm("a", Guest(1, 2, 1), &["4", "6"]).helper(Role::Emulator, "4-7"),
        RemoteMemory => pinned(Guest(1, 2, 1), &["0", "2"]).memory(&[(0, 3), (1, 1)]),
    }
}

/// The remedy for the only kind of mismatch of a VM on [`TWO_NODES`].
fn remedy(kind: MismatchKind, vm: VmPlacement, runtime: Runtime) -> String {
    let judged = judge_one(&TWO_NODES.host(), VmPlacement { runtime, ..vm });
    assert!(!judged.mismatches.is_empty());
    let first = judged.mismatches[0].remedy.clone();
    for found in judged.mismatches {
        assert_eq!((found.kind, &found.remedy), (kind, &first));
    }
    first
}

#[test]
fn libvirt_remedies_are_virsh_commands_with_numbers() {
    let pins = |purpose, commands| format!("{purpose}: {commands}{KEEP}");
    for (kind, expected) in [
        (
            SmtSplit,
            pins(
                "pin the threads of a guest core to one free host core",
                "virsh vcpupin a 1 1 --live",
            ) + "; or set threads='1' in the <topology> of <cpu> (virsh edit a) and restart the \
                 domain",
        ),
        (
            SmtShared,
            pins(
                "pin each guest core to a free host core",
                "virsh vcpupin a 1 2 --live",
            ) + "; or set threads='2' in the <topology> of <cpu> (virsh edit a) and restart the \
                 domain",
        ),
        (
            VcpuOverlap,
            pins(
                "pin each vCPU to a free pCPU",
                "virsh vcpupin a 1 0 --live",
            ),
        ),
        (
            NumaSplit,
            pins(
                "pin the vCPUs to free cores of one NUMA node",
                "virsh vcpupin a 2 4 --live; virsh vcpupin a 3 6 --live",
            ),
        ),
        (
            LlcSplit,
            pins(
                "pin the vCPUs to free cores of one last-level cache",
                "virsh vcpupin a 2 4 --live; virsh vcpupin a 3 6 --live",
            ),
        ),
        (
            HelperOnVcpu,
            pins(
                "pin the threads to a core without pinned vCPUs",
                "virsh emulatorpin a 14-15 --live",
            ),
        ),
        (
            RemoteMemory,
            "move the memory to the vCPUs: migratepages 99 1 0; for the next start: virsh numatune \
             a --mode strict --nodeset 0 --config"
                .to_owned(),
        ),
    ] {
        assert_eq!(remedy(kind, vm_with(kind), Runtime::Libvirt), expected);
    }
}

#[test]
fn remedies_without_a_manager_are_commands_with_thread_ids() {
    for (kind, expected) in [
        (SmtSplit, "core: taskset -pc 1 101"),
        (SmtShared, "core: taskset -pc 2 101"),
        (VcpuOverlap, "pCPU: taskset -pc 0 101"),
        (NumaSplit, "node: taskset -pc 4 102; taskset -pc 6 103"),
        (LlcSplit, "cache: taskset -pc 4 102; taskset -pc 6 103"),
        (HelperOnVcpu, "vCPUs: taskset -pc 14-15 4000"),
        (RemoteMemory, "vCPUs: migratepages 99 1 0"),
    ] {
        let remedy = remedy(kind, vm_with(kind), Runtime::Unknown);
        assert!(remedy.ends_with(expected), "{remedy}");
    }
}

#[test]
fn kubevirt_remedies_are_fields_of_the_vm_and_of_the_kubelet() {
    for (kind, expected) in [
        (
            SmtSplit,
            &[
                "sockets: 1, cores: 1 and threads: 2",
                "full-pcpus-only: \"true\"",
            ][..],
        ),
        (
            SmtShared,
            &[
                "sockets: 1, cores: 1 and threads: 2",
                "full-pcpus-only: \"true\"",
            ],
        ),
        (
            VcpuOverlap,
            &["dedicatedCpuPlacement: true", "cpuManagerPolicy: static"],
        ),
        (
            NumaSplit,
            &[
                "numa: {guestMappingPassthrough: {}}",
                "topologyManagerPolicy: single-numa-node",
                "memoryManagerPolicy: Static",
            ],
        ),
        (LlcSplit, &["prefer-align-cpus-by-uncorecache: \"true\""]),
        (HelperOnVcpu, &["isolateEmulatorThread: true"]),
        (
            RemoteMemory,
            &[
                "memoryManagerPolicy: Static",
                "until then: migratepages 99 1 0",
            ],
        ),
    ] {
        let remedy = remedy(kind, vm_with(kind), Runtime::KubeVirt);
        for part in expected {
            assert!(remedy.contains(part), "{kind:?}: {remedy}");
        }
        assert!(
            !remedy.contains("Kata") && !remedy.contains("virsh"),
            "{remedy}"
        );
    }
}

#[test]
fn kata_remedies_are_settings_of_kata_and_of_the_kubelet() {
    const OFF: &str = "enable_vcpus_pinning=false under [runtime] in configuration.toml";
    for (kind, expected) in [
        (SmtSplit, &[OFF][..]),
        (SmtShared, &[OFF, "distribute-cpus-across-cores: \"true\""]),
        (
            VcpuOverlap,
            &[OFF, "Guaranteed", "cpuManagerPolicy: static"],
        ),
        (
            NumaSplit,
            &["Guaranteed", "topologyManagerPolicy: single-numa-node"],
        ),
        (LlcSplit, &["prefer-align-cpus-by-uncorecache: \"true\""]),
        (HelperOnVcpu, &[OFF]),
        (
            RemoteMemory,
            &[
                "memoryManagerPolicy: Static",
                "until then: migratepages 99 1 0",
            ],
        ),
    ] {
        for runtime in [
            Runtime::Kata,
            Runtime::KataGo,
            Runtime::KataRs,
            Runtime::Dragonball,
        ] {
            let remedy = remedy(kind, vm_with(kind), runtime);
            for part in expected {
                assert!(remedy.contains(part), "{kind:?}: {remedy}");
            }
            assert!(!remedy.contains("VirtualMachine"), "{remedy}");
        }
    }
    // The annotation has another name in each runtime.
    let annotation = |runtime| remedy(SmtSplit, vm_with(SmtSplit), runtime);
    assert!(annotation(Runtime::KataGo).contains(" io.katacontainers.enable_vcpus_pinning,"));
    assert!(
        annotation(Runtime::KataRs)
            .contains(" io.katacontainers.config.runtime.enable_vcpus_pinning,")
    );
    assert!(!annotation(Runtime::Kata).contains("annotation"));
}

#[test]
fn kata_remedy_of_floating_siblings_does_not_disable_pins() {
    let one_core = floating(TWO_NODES, "a", Guest(1, 2, 1)).ran_on(&[0, 1]);
    let shared = remedy(SmtShared, one_core, Runtime::KataGo);
    assert!(shared.contains("enable_vcpus_pinning=true"), "{shared}");
    let two_cores = floating(TWO_NODES, "a", Guest(1, 1, 2)).ran_on(&[0, 2]);
    let split = remedy(SmtSplit, two_cores, Runtime::KataGo);
    assert!(split.contains("full-pcpus-only: \"true\""), "{split}");
}

#[test]
fn floating_vm_on_two_nodes_is_confined_to_one() {
    let vm = floating(TWO_NODES, "a", Guest(1, 2, 1)).ran_on(&[0, 16]);
    let commands = "virsh vcpupin a 0 0-15 --live; virsh vcpupin a 1 0-15 --live";
    assert_eq!(
        remedy(NumaSplit, vm, Runtime::Libvirt),
        format!("allow the vCPUs only the CPUs of one NUMA node: {commands}{KEEP}")
    );
}

#[test]
fn virsh_gets_the_number_of_the_vmm_and_a_quoted_domain() {
    let mut vm = VmPlacement {
        name: "my db".into(),
        ..vm_with(SmtSplit)
    };
    vm.vcpus[1].number = 7;
    let remedy = remedy(SmtSplit, vm, Runtime::Libvirt);
    assert!(
        remedy.contains("virsh vcpupin 'my db' 7 1 --live"),
        "{remedy}"
    );
}

#[test]
fn iothreads_are_pinned_by_their_numbers() {
    let mut vm = vm("a", Guest(1, 2, 1), &["4", "6"])
        .helper(Role::Iothread, "4-7")
        .helper(Role::Iothread, "4-7")
        .helper(Role::Vhost, "4-7")
        .helper(Role::Emulator, "4-7");
    vm.helpers[0].name = Comm::new("IO iothread12");
    let remedy = remedy(HelperOnVcpu, vm, Runtime::Libvirt);
    // The second iothread has another name, and vhost and emulator share a command.
    assert_eq!(
        commands(&remedy),
        [
            "virsh emulatorpin a 14-15 --live",
            "virsh iothreadpin a 12 14-15 --live",
            "taskset -pc 14-15 4001",
        ]
    );
}

#[test]
fn two_vms_get_different_free_cores() {
    let vm = |name, masks: &[&str]| VmPlacement {
        runtime: Runtime::Libvirt,
        ..vm(name, Guest(1, 2, 1), masks)
    };
    // The third VM is confined to the cores 0 and 1.
    let confined = vm("confined", &["0-1", "0-1"]).helper(Role::Emulator, "0-1");
    let vms = [vm("one", &["3", "4"]), vm("other", &["5", "4"]), confined];
    let judged = judge(&ONE_NODE.host(), &vms);
    for (judged, expected) in judged.iter().zip([
        "virsh vcpupin one 1 2 --live",
        "virsh vcpupin other 1 6 --live",
    ]) {
        assert_eq!(commands(&judged.mismatches[0].remedy), [expected]);
    }
}

#[test]
fn without_free_cores_the_pins_are_removed() {
    const TWO_CORES: Machine = Machine {
        cores: 2,
        ..ONE_NODE
    };
    let a = |runtime| VmPlacement {
        runtime,
        ..vm("a", Guest(1, 2, 1), &["0", "0"]).helper(Role::Emulator, "2")
    };
    let b = vm("b", Guest(1, 1, 1), &["1"]).helper(Role::Emulator, "3");
    for (runtime, expected) in [
        (
            Runtime::Libvirt,
            ["virsh vcpupin a 0 r --live", "virsh vcpupin a 1 r --live"],
        ),
        (
            Runtime::Unknown,
            ["taskset -pc 0-3 100", "taskset -pc 0-3 101"],
        ),
    ] {
        let judged = judge(&TWO_CORES.host(), &[a(runtime), b.clone()]);
        assert_eq!(commands(&judged[0].mismatches[0].remedy), expected);
    }
}

#[test]
fn remedy_of_a_large_vm_is_bounded() {
    const LARGE: Machine = Machine {
        cores: 128,
        ..ONE_NODE
    };
    let masks: Vec<String> = (0..64).map(|cpu: u32| cpu.to_string()).collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    let mut vm = vm("a", Guest(1, 32, 2), &masks);
    vm.runtime = Runtime::Libvirt;
    let judged = judge_one(&LARGE.host(), vm);
    let remedy = &judged.mismatches[0].remedy;
    assert_eq!(judged.mismatches.len(), 32);
    assert_eq!(commands(remedy).len(), 4);
    assert!(remedy.contains("; and 28 more like these"), "{remedy}");
    assert!(remedy.len() < 500, "{remedy}");
}

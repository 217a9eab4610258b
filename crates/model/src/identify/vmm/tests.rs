mod command_lines;

use proptest::prelude::*;

use super::{Vmm, identify};
use crate::facts::ProcessFact;
use crate::vocab::Comm;

const ID: &str = "d7dfb4a21fe1703a8537e60d5af248af729315d187b24a538102d14874c8117d";

/// A process with the executable `exe` and a command line that is split at spaces.
fn process(exe: &str, command: &str) -> ProcessFact {
    let command = command.replace("{id}", ID);
    ProcessFact {
        exe: (!exe.is_empty()).then(|| exe.to_owned()),
        args: command.split(' ').map(str::to_owned).collect(),
        comm: Comm::new(exe.rsplit('/').next().unwrap_or_default()),
    }
}

#[test]
fn comm_is_used_if_nothing_else_matches() {
    for (comm, vmm) in [
        ("qemu-system-x86", Vmm::Qemu),
        ("cloud-hyperviso", Vmm::CloudHypervisor),
        ("firecracker", Vmm::Firecracker),
        ("containerd-shim", Vmm::Dragonball),
        ("bash", Vmm::Other),
    ] {
        let process = ProcessFact {
            comm: Comm::new(comm),
            ..ProcessFact::default()
        };
        assert_eq!(identify(&process).vmm, vmm, "{comm}");
    }
    let runc = process(
        "/usr/bin/containerd-shim-runc-v2",
        "containerd-shim-runc-v2 -id a",
    );
    assert_eq!(identify(&runc).vmm, Vmm::Other);
    assert_eq!(identify(&runc).runtime, None);
}

#[test]
fn a_name_with_blanks_is_one_argument() {
    let process = ProcessFact {
        exe: Some("/usr/bin/qemu-system-x86_64".to_owned()),
        args: [
            "qemu",
            "-append",
            "-name x",
            "-name",
            "guest=My VM\u{1b}[2J\n,debug-threads=on",
        ]
        .map(str::to_owned)
        .to_vec(),
        comm: Comm::default(),
    };
    assert_eq!(identify(&process).name.as_deref(), Some("My VM[2J"));
}

#[test]
fn long_name_is_cut_between_characters() {
    let long = format!("qemu-system-x86_64 -name {}", "é".repeat(200));
    let name = identify(&process("/usr/bin/qemu-system-x86_64", &long)).name;
    assert_eq!(name, Some("é".repeat(126)));
    let blank = process(
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -name \u{7}\u{85}",
    );
    assert_eq!(identify(&blank).name, None);
}

proptest! {
    #[test]
    fn arbitrary_command_line_does_not_panic(
        exe: Option<String>,
        args in prop::collection::vec(
            prop_oneof![
                r"(--?(name|id|api-sock|api-socket|machine|accel)=?|guest=|,,|/run/vc/vm/|/run/kata/|é|x){0,5}",
                any::<String>(),
            ],
            0..8,
        ),
        comm: [u8; 16],
    ) {
        let name = identify(&ProcessFact { exe, args, comm: Comm(comm) }).name;
        if let Some(name) = name {
            prop_assert!((1..=253).contains(&name.len()));
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}

#[test]
fn guest_numa_nodes_are_parsed_from_qemu_arguments() {
    let nodes = |exe, command| identify(&process(exe, command)).guest_nodes;
    let qemu = "/usr/bin/qemu-system-x86_64";
    let two = "qemu -numa node,nodeid=0,cpus=0-1 -numa node,nodeid=1 -numa dist,src=0,dst=1";
    assert_eq!(nodes(qemu, two), Some(2));
    assert_eq!(nodes(qemu, "qemu -name numa -m 1G"), Some(1));
    assert_eq!(
        nodes("/usr/bin/cloud-hypervisor", "ch --api-socket x"),
        None
    );
}

#[test]
fn boot_vcpus_are_parsed_from_qemu_arguments() {
    let boot = |exe, command: &str| identify(&process(exe, command)).boot_vcpus;
    let qemu = "/usr/bin/qemu-system-x86_64";
    for (smp, vcpus) in [
        ("-smp 2,sockets=8,maxcpus=8", Some(2)),
        ("-smp cpus=4,maxcpus=8", Some(4)),
        ("-smp maxcpus=8,cpus=3", Some(3)),
        ("-smp sockets=2,cores=2", None),
        ("-m 1G", None),
    ] {
        assert_eq!(boot(qemu, &format!("qemu {smp}")), vcpus, "{smp}");
    }
    assert_eq!(boot("/usr/bin/firecracker", "fc -smp 2"), None);
}

#[test]
fn sandbox_id_is_parsed_from_kata_vmm_arguments() {
    let id = |exe, command: &str| identify(&process(exe, command)).sandbox_id;
    let qemu = "/opt/kata/bin/qemu-system-x86_64";
    let named = "qemu -mem-path /run/vc/vm/template/memory -name sandbox-demo1,debug-threads=on \
                 -qmp unix:/run/vc/vm/demo1/qmp.sock,server=on";
    assert_eq!(id(qemu, named).as_deref(), Some("demo1"));
    // Any program can use this name.
    assert_eq!(id(qemu, "qemu -name sandbox-demo1"), None);
    let hypervisor = "ch --api-socket /run/vc/vm/demo1/clh-api.sock";
    assert_eq!(
        id("/usr/bin/cloud-hypervisor", hypervisor).as_deref(),
        Some("demo1")
    );
    let shim = "containerd-shim-kata-v2 -namespace default -id demo1";
    assert_eq!(
        id("/usr/local/bin/containerd-shim-kata-v2", shim).as_deref(),
        Some("demo1")
    );
}

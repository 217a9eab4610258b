//! Command lines of VMMs as their runtimes write them.

use super::{ID, process};
use crate::identify::vmm::{Vmm, identify};

/// The executable, the command line, and the expected identity.
type Case = (
    &'static str,
    &'static str,
    Vmm,
    Option<&'static str>,
    Option<&'static str>,
);

const CASES: &[Case] = &[
    // QEMU: plain, libvirt, a libvirt session, KubeVirt, both Kata runtimes.
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -m 1G -name web",
        Vmm::Qemu,
        Some("web"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 --name web,process=x",
        Vmm::Qemu,
        Some("web"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -name a,,b,,,,c,debug-threads=on",
        Vmm::Qemu,
        Some("a,b,,c"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -name debug-threads=on",
        Vmm::Qemu,
        None,
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -name a -name b",
        Vmm::Qemu,
        Some("b"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -m 1G",
        Vmm::Qemu,
        None,
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu-system-x86_64 -name",
        Vmm::Qemu,
        None,
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64 (deleted)",
        "/usr/bin/qemu-system-x86_64 -name guest=web-01,debug-threads=on -S -object {\"qom-type\":\"secret\",\"id\":\"masterKey0\",\"format\":\"raw\",\"file\":\"/var/lib/libvirt/qemu/domain-1-web-01/master-key.aes\"}",
        Vmm::Qemu,
        Some("web-01"),
        Some("libvirt"),
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "/usr/bin/qemu-system-x86_64 -name guest=mine,debug-threads=on -object secret,id=masterKey0,file=/home/me/.config/libvirt/qemu/lib/domain-1-mine/master-key.aes",
        Vmm::Qemu,
        Some("mine"),
        Some("libvirt"),
    ),
    (
        "/usr/libexec/qemu-kvm",
        "/usr/libexec/qemu-kvm -name guest=default_testvm,debug-threads=on -S -object secret,id=masterKey0,file=/var/lib/libvirt/qemu/domain-1-default_testvm/master-key.aes -smbios type=1,manufacturer=KubeVirt,product=None",
        Vmm::Qemu,
        Some("default_testvm"),
        Some("kubevirt"),
    ),
    (
        "/usr/libexec/qemu-kvm",
        "/usr/libexec/qemu-kvm -name guest=ns_vm,debug-threads=on -blockdev driver=file,filename=/var/run/kubevirt-ephemeral-disks/disk.img",
        Vmm::Qemu,
        Some("ns_vm"),
        Some("kubevirt"),
    ),
    (
        "/opt/kata/bin/qemu-system-x86_64",
        "/opt/kata/bin/qemu-system-x86_64 -name sandbox-{id},debug-threads=on -uuid x",
        Vmm::Qemu,
        Some("sandbox-d7dfb4a21fe1703a8537e60d5af248af729315d187b24a538102d14874c8117d"),
        Some("kata"),
    ),
    (
        "/opt/kata/bin/qemu-system-x86_64-snp-experimental",
        "qemu -name sandbox-hello1 -qmp unix:/run/vc/vm/hello1/qmp.sock,server=on",
        Vmm::Qemu,
        Some("sandbox-hello1"),
        Some("kata"),
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu -name sandbox-mine",
        Vmm::Qemu,
        Some("sandbox-mine"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu -name sandbox-beef",
        Vmm::Qemu,
        Some("sandbox-beef"),
        None,
    ),
    (
        "/usr/bin/qemu-system-x86_64",
        "qemu -name guest=a,b",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "/nix/store/x/bin/.qemu-kvm-wrapped",
        "vm -name a",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    // Cloud Hypervisor: the Go runtime, runtime-rs, rootless, standalone.
    (
        "/opt/kata/bin/cloud-hypervisor",
        "/opt/kata/bin/cloud-hypervisor --api-socket /run/vc/vm/{id}/clh-api.sock",
        Vmm::CloudHypervisor,
        Some(ID),
        Some("kata"),
    ),
    (
        "/opt/kata/bin/cloud-hypervisor-glibc",
        "cloud-hypervisor --api-socket path=/run/user/1001/run/vc/vm/{id}/clh-api.sock",
        Vmm::CloudHypervisor,
        Some(ID),
        Some("kata"),
    ),
    (
        "/opt/kata/bin/cloud-hypervisor",
        "cloud-hypervisor --api-socket=/run/kata/{id}/ch-api.sock",
        Vmm::CloudHypervisor,
        Some(ID),
        Some("kata"),
    ),
    (
        "/usr/bin/cloud-hypervisor",
        "cloud-hypervisor --api-socket path=/tmp/ch.sock --cpus boot=4",
        Vmm::CloudHypervisor,
        None,
        None,
    ),
    (
        "/usr/bin/cloud-hypervisor",
        "cloud-hypervisor --api-socket fd=7",
        Vmm::CloudHypervisor,
        None,
        None,
    ),
    // Firecracker: jailed, standalone, runtime-rs without a jailer.
    (
        "/firecracker",
        "/firecracker --id vm1 --start-time-us 1 --start-time-cpu-us 1 --parent-cpu-time-us 1 --api-sock /run/fc.sock",
        Vmm::Firecracker,
        Some("vm1"),
        None,
    ),
    (
        "/usr/bin/firecracker-v1.10.1-x86_64",
        "firecracker --no-api --id=a",
        Vmm::Firecracker,
        Some("a"),
        None,
    ),
    (
        "/opt/kata/bin/firecracker",
        "firecracker --api-sock /run/kata/{id}/run/fc.sock",
        Vmm::Firecracker,
        Some(ID),
        Some("kata"),
    ),
    (
        "/opt/kata/bin/firecracker",
        "firecracker --api-sock /run/vc/firecracker/short/root/run/fc.sock --id short",
        Vmm::Firecracker,
        Some("short"),
        Some("kata"),
    ),
    (
        "/usr/bin/firecracker",
        "firecracker --api-sock /tmp/fc.sock",
        Vmm::Firecracker,
        None,
        None,
    ),
    // Dragonball in the shim.
    (
        "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2",
        "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2 -namespace k8s.io -address /run/containerd/containerd.sock -publish-binary /usr/bin/containerd -id {id}",
        Vmm::Dragonball,
        Some(ID),
        Some("kata"),
    ),
    // The other VMMs.
    (
        "/usr/bin/stratovirt",
        "stratovirt -machine microvm -name box -qmp unix:/x",
        Vmm::StratoVirt,
        Some("box"),
        None,
    ),
    (
        "/usr/bin/lkvm",
        "lkvm run --name box -c 2",
        Vmm::Kvmtool,
        Some("box"),
        None,
    ),
    ("/usr/bin/lkvm", "lkvm run -c 2", Vmm::Kvmtool, None, None),
    (
        "/usr/bin/crosvm",
        "crosvm run --name=box vmlinux",
        Vmm::Crosvm,
        Some("box"),
        None,
    ),
    (
        "/usr/bin/crosvm",
        "crosvm run vmlinux",
        Vmm::Crosvm,
        None,
        None,
    ),
    // Wrapped, unreadable and renamed executables.
    (
        "/nix/store/x/bin/.qemu-kvm-wrapped",
        "qemu-kvm -name a",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/qemu-system-x86_64 -name a",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "",
        "/usr/bin/qemu-system-x86_64 -name a",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "/opt/vm/engine",
        "engine -machine q35 -accel kvm -name a",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "/opt/vm/engine",
        "engine -name guest=a,process=b",
        Vmm::Qemu,
        Some("a"),
        None,
    ),
    (
        "/opt/vm/engine",
        "engine --api-socket /run/vc/vm/{id}/clh-api.sock",
        Vmm::CloudHypervisor,
        Some(ID),
        Some("kata"),
    ),
    (
        "/opt/vm/engine",
        "engine --api-sock /a --id b",
        Vmm::Firecracker,
        Some("b"),
        None,
    ),
    (
        "/opt/vm/engine",
        "engine -smp 2 -name a",
        Vmm::Other,
        Some("a"),
        None,
    ),
    // Unknown VMMs.
    (
        "/usr/bin/minivm",
        "minivm --vcpus 2 --name test-1",
        Vmm::Other,
        Some("test-1"),
        None,
    ),
    ("/usr/bin/vmm", "vmm --id 7", Vmm::Other, Some("7"), None),
    (
        "/usr/bin/vmm",
        "vmm --id 7 --name n",
        Vmm::Other,
        Some("n"),
        None,
    ),
    (
        "/usr/bin/vmm",
        "vmm --named x --identity y",
        Vmm::Other,
        None,
        None,
    ),
    ("/usr/bin/vmm", "--name x", Vmm::Other, None, None),
    ("", "", Vmm::Other, None, None),
];

#[test]
fn every_command_line_is_identified() {
    for (exe, command, vmm, name, runtime) in CASES {
        let identity = identify(&process(exe, command));
        assert_eq!(identity.vmm, *vmm, "{command}");
        assert_eq!(identity.name.as_deref(), *name, "{command}");
        assert_eq!(identity.runtime, *runtime, "{command}");
    }
}

#[test]
fn every_vmm_is_listed_under_its_name() {
    for vmm in Vmm::ALL {
        assert!(CASES.iter().any(|case| case.2 == vmm), "{vmm:?}");
    }
    let mut names: Vec<_> = Vmm::ALL.iter().map(|vmm| vmm.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Vmm::ALL.len());
}

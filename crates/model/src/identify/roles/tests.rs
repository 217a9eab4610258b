use proptest::prelude::*;

use super::{Traits, role_of};
use crate::facts::ThreadKind::{self, IoWorker, Kthread, User, UserWorker};
use crate::identify::vmm::Vmm;
use crate::vocab::Comm;
use crate::vocab::Role::{self, Emulator, Helper, Iothread, Vcpu, Vhost, Virtiofsd};

const VMMS: [Vmm; 8] = Vmm::ALL;

/// A thread of a VMM of this type.
fn vmm_thread(vmm: Vmm, kind: ThreadKind, name: impl AsRef<[u8]>) -> Traits {
    Traits {
        kind,
        is_vcpu: false,
        in_vmm: true,
        vmm,
        comm: Comm::new(name),
        process_comm: Comm::new("a-vmm"),
    }
}

/// A thread of another process of the pod.
fn pod_thread(kind: ThreadKind, process: &str, name: &str) -> Traits {
    Traits {
        in_vmm: false,
        process_comm: Comm::new(process),
        ..vmm_thread(Vmm::Qemu, kind, name)
    }
}

/// For each VMM a name of a thread that does I/O and a name of a thread that does not.
const NAMES: [(Vmm, &str, &str); 8] = [
    (
        Vmm::Qemu,
        "IO iothread1|IO io1",
        "worker|IO mon_iothread|call_rcu|vnc_worker|live_migration|qemu-system-x86|SPICE Worker|IO|_disk0_q0",
    ),
    (
        Vmm::CloudHypervisor,
        "_disk0_q0|_disk12_q15|root_q1|_net1_qp0|_fs2|_vsock4|_pmem3",
        "_net1_ctrl|__rng|__console|__balloon|__iommu|__watchdog|_mem0|vmm|http-server|event-monitor|\
         serial-manager|vmm_signal_hand|cloud-hyperviso|_fs|_fsx|_q0|disk_q|disk_q0x|_generic_vhost_|IO io1",
    ),
    (
        Vmm::Firecracker,
        "",
        "firecracker|fc_api|gdb|_disk0_q0|IO io1",
    ),
    (
        Vmm::Dragonball,
        "blk_iothread_q0|drive_q3|virtiofs-thread",
        "vmm_master|tokio-runtime-w|containerd-shim|_net1_qp0",
    ),
    (Vmm::StratoVirt, "", "iothread1|stratovirt|thread-pool"),
    (
        Vmm::Kvmtool,
        "virtio-blk-io|virtio-net-rx|virtio-net-tx|disk-image-io",
        "virtio-net-ctrl|ioeventfd-worke|threadpool-work|term-poll|kvm-ipc|lkvm",
    ),
    (
        Vmm::Crosvm,
        "virtio_blk|v_net:0|v_fs:root:1|v_9p|v_pmem|v_scsi_req_2",
        "v_scsi_ctrlq|v_balloon|v_gpu|v_console|vhost_net|vhost_vsock|irq_handler_thr|crosvm",
    ),
    (Vmm::Other, "", "IO io1|_disk0_q0|virtio-blk-io|minivm"),
];

#[test]
fn thread_names_of_every_vmm_are_recognized() {
    assert_eq!(NAMES.map(|(vmm, _, _)| vmm), VMMS);
    for (vmm, io, rest) in NAMES {
        for (names, role) in [(io, Iothread), (rest, Emulator)] {
            for name in names.split('|').filter(|name| !name.is_empty()) {
                assert!(name.len() <= 15, "{name} is longer than a comm");
                assert_eq!(
                    role_of(&vmm_thread(vmm, User, name)),
                    Some(role),
                    "{vmm:?} {name}"
                );
            }
        }
    }
}

#[test]
fn thread_name_alone_is_not_a_vcpu() {
    for name in [
        "CPU 0/KVM",
        "vcpu0",
        "fc_vcpu 0",
        "db_vcpu0",
        "kvm-vcpu-0",
        "crosvm_vcpu0",
        "CPU 0/Kvm",
    ] {
        for vmm in VMMS {
            assert_eq!(
                role_of(&vmm_thread(vmm, User, name)),
                Some(Emulator),
                "{vmm:?} {name}"
            );
        }
        assert_eq!(
            role_of(&pod_thread(User, "fake", name)),
            Some(Helper),
            "{name}"
        );
    }
}

#[test]
fn vcpu_with_any_name_is_a_vcpu() {
    for vmm in VMMS {
        for name in [
            "vhost-1",
            "IO io1",
            "_disk0_q0",
            "virtiofsd",
            "qemu-system-x86",
            "",
        ] {
            let vcpu = Traits {
                is_vcpu: true,
                ..vmm_thread(vmm, User, name)
            };
            assert_eq!(role_of(&vcpu), Some(Vcpu), "{vmm:?} {name}");
        }
    }
}

#[test]
fn vhost_worker_requires_flag_and_name() {
    for vmm in VMMS {
        for (kind, name, role) in [
            (UserWorker, "vhost-4711", Vhost),
            (Kthread, "vhost-4711", Vhost),
            (UserWorker, "kvm-nx-lpage-re", Emulator),
            (Kthread, "io_uring-sq", Emulator),
            (User, "vhost-4711", Emulator),
            (IoWorker, "vhost-4711", Iothread),
            (IoWorker, "iou-wrk-4711", Iothread),
            (IoWorker, "iou-sqp-4711", Iothread),
        ] {
            assert_eq!(
                role_of(&vmm_thread(vmm, kind, name)),
                Some(role),
                "{kind:?} {name}"
            );
        }
    }
}

#[test]
fn other_processes_of_pod_are_helpers() {
    for (kind, process, name, role) in [
        (User, "virtiofsd", "virtiofsd", Some(Virtiofsd)),
        (User, "virtiofsd", "virtiofsd-backe", Some(Virtiofsd)),
        (User, "virtiofsd", "vring_worker", Some(Virtiofsd)),
        (User, "virtiofsd-debug", "a", Some(Virtiofsd)),
        (IoWorker, "virtiofsd", "iou-wrk-9", Some(Virtiofsd)),
        (User, "containerd-shim", "virtiofsd", Some(Helper)),
        (User, "myvirtiofsd", "virtiofsd", Some(Helper)),
        (User, "virt-launcher", "virt-launcher", Some(Helper)),
        (User, "swtpm", "IO io1", Some(Helper)),
        (User, "pcivirtio-block", "virtio_blk", Some(Helper)),
        (User, "fake", "vhost-1", Some(Helper)),
        (IoWorker, "passt", "iou-wrk-9", Some(Helper)),
        (UserWorker, "dpdk", "vhost-99", Some(Vhost)),
        (UserWorker, "dpdk", "other", Some(Helper)),
        (Kthread, "vhost-99", "vhost-99", Some(Vhost)),
        (Kthread, "kvm-pit/17", "kvm-pit/17", None),
        (Kthread, "kvm-nx-lpage-re", "kvm-nx-lpage-re", None),
        (Kthread, "virtiofsd", "virtiofsd", None),
        (User, "", "", None),
        (User, "", "named", Some(Helper)),
    ] {
        assert_eq!(
            role_of(&pod_thread(kind, process, name)),
            role,
            "{kind:?} {process} {name}"
        );
    }
}

#[test]
fn vmm_named_virtiofsd_is_the_vmm() {
    let thread = Traits {
        process_comm: Comm::new("virtiofsd"),
        ..vmm_thread(Vmm::Qemu, User, "virtiofsd")
    };
    assert_eq!(role_of(&thread), Some(Emulator));
}

#[test]
fn thread_name_with_any_bytes_has_role() {
    for name in [&b"\xff\xfe_q1"[..], b"IO \xff", b"\x80vhost-"] {
        let role = role_of(&vmm_thread(Vmm::CloudHypervisor, User, name));
        assert_eq!(role == Some(Iothread), name.ends_with(b"_q1"), "{name:?}");
    }
    assert_eq!(
        role_of(&vmm_thread(Vmm::Qemu, User, b"IO \xff")),
        Some(Iothread)
    );
}

proptest! {
    #[test]
    fn only_kvm_vcpu_is_a_vcpu(
        name: [u8; 16], process: [u8; 16], kind in 0..4usize, vmm in 0..VMMS.len(), in_vmm: bool,
    ) {
        let traits = Traits {
            kind: [User, UserWorker, IoWorker, Kthread][kind],
            is_vcpu: false,
            in_vmm,
            vmm: VMMS[vmm],
            comm: Comm(name),
            process_comm: Comm(process),
        };
        let role: Option<Role> = role_of(&traits);
        prop_assert_ne!(role, Some(Vcpu));
        prop_assert!(!in_vmm || role.is_some());
        prop_assert_eq!(role_of(&Traits { is_vcpu: true, ..traits }), Some(Vcpu));
    }
}

//! Names do not fool it: what is a VM, and what a vCPU, is KVM's to say.

use std::thread;

use virtlens_model::snapshot::Role;
use virtlens_tests::{Minivm, Qemu, need};

use crate::reader::{self, cpu_ns, find, threads, vm};

#[test]
fn a_process_with_a_thread_named_like_a_vcpu_is_no_vm() {
    if !reader::ready("a_process_with_a_thread") {
        return;
    }
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let liar = thread::Builder::new()
        .name("CPU 0/KVM".to_owned())
        .spawn(move || wait.recv());
    let snapshot = reader::collector().collect();
    let found = find(&snapshot, std::process::id());
    drop(end);
    assert!(
        liar.expect("a thread can be started")
            .join()
            .expect("it ends well")
            .is_err()
    );
    assert!(found.is_none(), "{found:?}");
}

#[test]
fn a_vmm_whose_threads_are_all_called_alike_is_split_rightly() {
    if !reader::ready("all_called_alike") {
        return;
    }
    let args = [
        "--vcpus",
        "3",
        "--vcpu-name",
        "same",
        "--thread",
        "minivm=2",
        "--name",
        "alike",
    ];
    let mut guest = Minivm::start(args);
    guest.burn_vcpus("all", 31);
    let snapshot = reader::collector().collect();
    let vm = vm(&snapshot, guest.pid());
    assert_eq!(threads(vm, Role::Vcpu), 3);
    assert!(cpu_ns(vm, Role::Vcpu) >= 93_000_000, "{vm:?}");
    let tids: Vec<_> = vm.vcpus.iter().filter_map(|vcpu| vcpu.tid).collect();
    let expected: Vec<_> = guest
        .ready
        .vcpus
        .iter()
        .map(|one| one.tid.unsigned_abs())
        .collect();
    assert_eq!(tids, expected);
}

#[test]
fn a_renamed_vmm_is_found() {
    if !reader::ready("a_renamed_vmm") || !need::all("a_renamed_vmm", [need::qemu()]) {
        return;
    }
    let name = ["-name", "guest=hidden", "-smp", "2"];
    let qemu = Qemu::start_launch(2, Qemu::launch().arg0("definitely-not-a-vmm").args(name));
    let other = Minivm::start([
        "--comm",
        "kworker/0:1",
        "--vcpu-name",
        "vhost-1",
        "--vcpus",
        "2",
    ]);
    let snapshot = reader::collector().collect();
    let qemu = vm(&snapshot, qemu.pid());
    assert_eq!((&*qemu.vm, threads(qemu, Role::Vcpu)), ("hidden", 2));
    let other = vm(&snapshot, other.pid());
    assert_eq!(
        (threads(other, Role::Vcpu), threads(other, Role::Vhost)),
        (2, 0)
    );
}

#[test]
fn a_vm_is_called_what_its_vmm_was_told() {
    if !reader::ready("a_vm_is_called") || !need::all("a_vm_is_called", [need::qemu()]) {
        return;
    }
    let qemu = Qemu::start(1, ["-name", "guest=db,,1,debug-threads=on"]);
    let twins = [
        Minivm::start(["--name", "twin"]),
        Minivm::start(["--name", "twin"]),
    ];
    let snapshot = reader::collector().collect();
    assert_eq!(&*vm(&snapshot, qemu.pid()).vm, "db,1");
    assert_eq!(vm(&snapshot, qemu.pid()).vmm, "qemu");
    let names = twins.each_ref().map(|twin| &*vm(&snapshot, twin.pid()).vm);
    assert_ne!(names[0], names[1], "names are unique on the node");
    assert!(
        names.iter().all(|name| name.starts_with("twin")),
        "{names:?}"
    );
}

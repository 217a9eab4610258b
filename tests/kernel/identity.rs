//! KVM, not names, decides which processes are VMs and which threads are vCPUs.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use virtlens_model::snapshot::Thread;
use virtlens_model::vocab::Role;
use virtlens_tests::process::{Schedstat, tids};
use virtlens_tests::reader::{self, cpu_ns, find, threads, vm};
use virtlens_tests::{
    Launch, Minivm, Qemu, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

const QEMU: &str = "qemu-system-x86_64";

#[test]
fn process_with_thread_named_like_vcpu_is_not_a_vm() {
    if !reader::ready("process_with_thread_named_like_vcpu_is_not_a_vm") {
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
fn vmm_with_identical_thread_names_is_split_by_role() {
    if !reader::ready("vmm_with_identical_thread_names_is_split_by_role") {
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
fn renamed_vmm_is_found() {
    if !reader::ready("renamed_vmm_is_found") || !need::all("renamed_vmm_is_found", [need::qemu()])
    {
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

/// Neither the file name, argv[0] nor the process name identifies the VMM.
#[test]
fn vmm_with_renamed_file_is_measured_exactly() {
    if !reader::ready("vmm_with_renamed_file_is_measured_exactly") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder can be made");
    let file = dir.path().join("not-a-vmm");
    std::fs::copy(binary("minivm"), &file).expect("there is room for a copy");
    let args = ["--vcpus", "2", "--start", "duty:50", "--thread", "IO x=1"];
    let mut guest = Minivm::start_launch(Launch::new(&file).args(args));
    guest.burn_threads("0", 17);
    let pid = guest.pid();
    let stat = |tid| Schedstat::read(pid, tid).expect("no thread ends here");
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    assert!(exe.ends_with("not-a-vmm"), "{exe:?}");

    let mut collector = reader::collector();
    let before: Vec<_> = tids(pid).into_iter().map(|tid| (tid, stat(tid))).collect();
    let snapshot = collector.collect();
    let found = vm(&snapshot, pid);
    for (tid, low) in &before {
        let (tid, high) = (tid.unsigned_abs(), stat(*tid));
        let thread = found.threads.iter().find(|one| one.tid == tid);
        let thread = thread.unwrap_or_else(|| panic!("thread {tid} is missing: {found:?}"));
        let cpu = low.cpu_ns..=high.cpu_ns;
        assert!(cpu.contains(&thread.cpu_ns), "{thread:?} is not in {cpu:?}");
        let runs_vcpu = guest
            .ready
            .vcpus
            .iter()
            .any(|one| one.tid == tid.cast_signed());
        // "IO x" names an iothread only in QEMU, and this process may be any program.
        let role = if runs_vcpu {
            Role::Vcpu
        } else {
            Role::Emulator
        };
        assert_eq!(thread.role, Some(role), "{thread:?}");
    }
    assert_eq!(found.threads.len(), before.len());
    assert_eq!((found.vmm, threads(found, Role::Vcpu)), ("other", 2));
}

/// A QEMU with a renamed file is identified by its command line; the names that QEMU
/// gives its threads decide their roles.
#[test]
fn qemu_with_renamed_file_keeps_roles() {
    let test = "qemu_with_renamed_file_keeps_roles";
    if !reader::ready(test) || !need::all(test, [need::qemu()]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder can be made");
    let file = dir.path().join("not-a-vmm");
    std::fs::copy(qemu_file(), &file).expect("there is room for a copy");
    // QEMU searches for firmware next to its file, where the copy has none.
    let firmware = firmware_dirs();
    let firmware = firmware.lines().flat_map(|dir| ["-L", dir]);
    let args = [
        "-accel",
        "kvm",
        "-smp",
        "2",
        "-nodefaults",
        "-display",
        "none",
        "-name",
        "guest=renamed,debug-threads=on",
        "-object",
        "iothread,id=io0",
    ];
    let qemu = Qemu::start_launch(2, Launch::new(&file).args(args).args(firmware));
    let iothread = eventually("its iothread", || qemu.tid_of("IO io0"));

    let snapshot = reader::collector().collect();
    let found = vm(&snapshot, qemu.pid());
    assert_eq!((&*found.vm, found.vmm), ("renamed", "qemu"));
    assert_eq!(threads(found, Role::Vcpu), 2);
    let of_iothread = |one: &&Thread| one.role == Some(Role::Iothread);
    let iothreads: Vec<_> = found.threads.iter().filter(of_iothread).collect();
    assert_eq!(iothreads.len(), 1, "{found:?}");
    assert_eq!(iothreads[0].tid, iothread.unsigned_abs());
}

/// Path of QEMU according to `PATH`.
fn qemu_file() -> PathBuf {
    let path = std::env::var_os("PATH").expect("QEMU was found in it");
    std::env::split_paths(&path)
        .map(|dir| dir.join(QEMU))
        .find(|file| file.is_file())
        .expect("QEMU was found in it")
}

/// QEMU's firmware directories, one per line.
fn firmware_dirs() -> String {
    let output = Command::new(QEMU).args(["-L", "help"]).output();
    String::from_utf8(output.expect("QEMU starts").stdout).expect("text")
}

#[test]
fn vm_has_name_from_vmm_arguments() {
    if !reader::ready("vm_has_name_from_vmm_arguments")
        || !need::all("vm_has_name_from_vmm_arguments", [need::qemu()])
    {
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

/// On cgroup v1 each thread can be in any cgroup, and runtimes use that (kata 13273). On
/// v2 a process stays in one domain.
#[test]
fn a_thread_outside_of_its_pod_is_counted() {
    if !reader::ready("a_thread_outside_of_its_pod_is_counted")
        || !need::all(
            "a_thread_outside_of_its_pod_is_counted",
            [need::cpu_cgroup()],
        )
    {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let container = pod.child(&"ab".repeat(32));
    let elsewhere = TestCgroup::new(&format!("virtlens-elsewhere-{}", std::process::id()));
    let args = ["--vcpus", "2", "--thread", "io=2", "--name", "strayed"];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    let loose = Minivm::start(["--vcpus", "1", "--name", "loose"]);
    let mut collector = reader::collector();
    let mut outside = |pid| -> Vec<_> {
        let snapshot = collector.collect();
        let roles = vm(&snapshot, pid).roles.iter();
        let known = roles.filter(|role| matches!(role.role, Role::Vcpu | Role::Emulator));
        known.map(|role| role.outside_pod).collect()
    };
    assert_eq!(outside(guest.pid()), [Some(0), Some(0)]);
    assert_eq!(outside(loose.pid()), [None, None], "it is no pod's");
    if pod.is_v1() {
        elsewhere.add_thread(guest.ready.threads[0].tid);
        assert_eq!(outside(guest.pid()), [Some(0), Some(1)]);
        elsewhere.add_thread(guest.ready.vcpus[1].tid);
        assert_eq!(outside(guest.pid()), [Some(1), Some(1)]);
    }
}

use virtlens_host::{node, process, vcpu_fds, vm_fds, vm_processes};

use crate::tree::{THREAD, Thread, Tree};

#[test]
fn vcpus_are_counted_by_their_ids() {
    let tree = Tree::v2();
    let links = [
        "/dev/kvm",
        "anon_inode:kvm-vm",
        "anon_inode:kvm-vcpu:0",
        "anon_inode:kvm-vcpu:4",
        "anon_inode:kvm-vcpu:4",
        "anon_inode:kvm-vcpu-stats:5",
        "/tmp/kvm-vcpu:6",
        "socket:[17]",
    ];
    tree.fds(7, &links);
    assert_eq!(vcpu_fds(&tree.root(), 7).expect("a process"), 2);
    let fds = vm_fds(&tree.root(), 7).expect("a process");
    assert!(fds.has_vm && !fds.is_cut);
    assert_eq!(fds.vcpu_ids.into_iter().collect::<Vec<_>>(), [0, 4]);
    assert!(vcpu_fds(&tree.root(), 8).expect_err("none").is_gone());
}

#[test]
fn scan_finds_vms_and_vhost_kernel_threads() {
    let tree = Tree::v1();
    let process = |pid, comm| {
        tree.thread(Thread {
            tgid: pid,
            tid: pid,
            comm,
            ..THREAD
        });
    };
    process(1, b"init");
    tree.fds(1, &["/dev/null", "socket:[3]"]);
    process(20, b"qemu-system-x86");
    tree.fds(
        20,
        &["/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0"],
    );
    process(30, b"vhost-20");
    process(31, b"kworker/0:1");
    // A name alone does not count.
    process(40, b"vhost-20");
    tree.fds(40, &["/dev/null"]);
    // Ended between the listing and the inspection.
    tree.mkdir("proc/50");
    tree.write("proc/version", "not a process");
    let scan = vm_processes(&tree.root()).expect("a /proc");
    assert_eq!(
        scan.vms.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(),
        [20]
    );
    assert_eq!(scan.vms[0].1.vcpus(), 1);
    assert_eq!(scan.kthreads, [30]);
    assert_eq!(scan.losses.races, 1);
}

#[test]
fn process_file_and_arguments_are_read() {
    let tree = Tree::v2();
    tree.write("proc/7/comm", b"a)\nb (c\n");
    tree.write("proc/7/cmdline", b"/usr/bin/qemu\0-name\0guest=\xff\0\0");
    tree.link("proc/7/exe", b"/usr/bin/qemu (deleted)");
    let fact = process(&tree.root(), 7).expect("a process");
    assert_eq!(fact.comm.as_bytes(), b"a)\nb (c");
    assert_eq!(fact.args, ["/usr/bin/qemu", "-name", "guest=\u{fffd}", ""]);
    assert_eq!(fact.exe.as_deref(), Some("/usr/bin/qemu"));

    tree.remove("proc/7/exe");
    assert_eq!(process(&tree.root(), 7).expect("a kernel thread").exe, None);
    tree.remove("proc/7/cmdline");
    assert!(process(&tree.root(), 7).expect_err("half gone").is_gone());
}

#[test]
fn truncated_command_line_keeps_whole_arguments() {
    let tree = Tree::v2();
    tree.write("proc/7/comm", "x\n");
    tree.write(
        "proc/7/cmdline",
        ["first\0", &"y".repeat(70_000), "\0"].concat(),
    );
    let fact = process(&tree.root(), 7).expect("a process");
    assert_eq!(fact.args, ["first"]);
}

#[test]
fn node_facts_are_read_from_files() {
    let tree = Tree::v2();
    tree.write("proc/sys/kernel/hostname", "worker-3\n");
    tree.write("proc/sys/kernel/osrelease", "6.12.1-amd64\n");
    tree.write("sys/devices/system/cpu/online", "0-3,6\n");
    let facts = node(&tree.root()).expect("a node");
    assert_eq!(
        (&*facts.hostname, &*facts.kernel),
        ("worker-3", "6.12.1-amd64")
    );
    assert_eq!(facts.online.to_string(), "0-3,6");
    assert_eq!((facts.ticks_per_s, facts.boot_unix_s), (100, None));

    tree.write("sys/devices/system/cpu/online", "all\n");
    let error = node(&tree.root()).expect_err("no CPU list");
    assert!(error.to_string().contains("cpu/online"), "{error}");
}

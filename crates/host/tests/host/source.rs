//! Tests of [`ProcSource`] on synthetic hosts.

use virtlens_host::ProcSource;
use virtlens_model::facts::{Facts, ThreadFact, ThreadKind, WatchedCgroup};
use virtlens_model::vocab::{Owner, VmKey};

use crate::tree::{SWITCHES, THREAD, Thread, Tree};

pub(crate) const POD: &str = "/kubepods/pod1";
const SANDBOX: &str = "/kubepods/pod1/kata_x";
const USER_WORKER: u32 = 0x0040_4000;
const KTHREAD: u32 = 0x0020_8040;

pub(crate) const VMM: Thread = Thread {
    tgid: 20,
    tid: 20,
    comm: b"qemu-system-x86",
    cgroup: SANDBOX,
    ..THREAD
};
pub(crate) const VCPU_0: Thread = Thread {
    tid: 21,
    comm: b"CPU 0/KVM",
    cpus: "2",
    ..VMM
};
pub(crate) const VCPU_1: Thread = Thread {
    tid: 22,
    comm: b"CPU 1/KVM",
    cpus: "3",
    ..VMM
};
pub(crate) const VIRTIOFSD: Thread = Thread {
    tgid: 40,
    tid: 40,
    comm: b"virtiofsd",
    ..VMM
};
pub(crate) const VM: Owner = Owner::Vm(VmKey {
    start_ns: 10_000_000_000,
    tgid: 20,
});

/// A pod with one QEMU of two vCPUs and a virtiofsd.
pub(crate) fn with_pod(tree: Tree) -> Tree {
    tree.cgroup("/kubepods");
    tree.cgroup(POD);
    tree.cgroup(SANDBOX);
    for thread in [VMM, VCPU_0, VCPU_1, VIRTIOFSD] {
        tree.thread(thread);
    }
    tree.fds(
        20,
        &[
            "anon_inode:kvm-vm",
            "anon_inode:kvm-vcpu:0",
            "anon_inode:kvm-vcpu:1",
        ],
    );
    tree
}

pub(crate) fn source(tree: &Tree) -> ProcSource {
    ProcSource::new(tree.root(), tree.cgroups())
}

pub(crate) fn watching(tree: &Tree, cgroup: &str) -> ProcSource {
    let mut source = source(tree);
    source.watch(&[watched(tree, cgroup)]);
    source
}

fn watched(tree: &Tree, cgroup: &str) -> WatchedCgroup {
    let cgroup = tree.id(cgroup);
    WatchedCgroup {
        cgroup,
        pod: cgroup,
    }
}

pub(crate) fn read(source: &mut ProcSource) -> Facts {
    source.read().expect("a /proc")
}

pub(crate) fn thread(facts: &Facts, tid: u32) -> &ThreadFact {
    let mut found = facts.threads.iter().filter(|thread| thread.tid == tid);
    let thread = found.next().expect("the thread");
    assert!(found.next().is_none(), "{tid} was read twice");
    thread
}

/// Tids with their vCPU ids, by tid.
fn vcpu_ids(facts: &Facts) -> Vec<(u32, u32)> {
    let threads = facts.threads.iter();
    let mut ids: Vec<(u32, u32)> = threads
        .filter_map(|thread| Some((thread.tid, thread.vcpu?.id)))
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_vm_its_helpers_and_its_cgroups_are_read() {
    for tree in [
        with_pod(Tree::v1()),
        with_pod(Tree::v2()),
        with_pod(Tree::hybrid()),
    ] {
        let facts = read(&mut watching(&tree, POD));
        assert_eq!(facts.vms.len(), 1);
        assert_eq!((Owner::Vm(facts.vms[0].vm), facts.vms[0].vcpus), (VM, 2));
        assert_eq!(facts.threads.len(), 4);

        let vcpu = thread(&facts, 21);
        assert_eq!(
            (vcpu.owner, vcpu.tgid, vcpu.kind),
            (VM, 20, ThreadKind::User)
        );
        assert_eq!(
            (vcpu.comm.as_bytes(), vcpu.process_comm.as_bytes()),
            (VCPU_0.comm, VMM.comm)
        );
        assert_eq!((vcpu.cpu_ns, vcpu.wait_ns), (5_000_000, Some(700)));
        assert_eq!((vcpu.guest_ns, vcpu.pcpu), (Some(2_000_000_000), Some(2)));
        assert_eq!(vcpu.switches, Some(SWITCHES));
        assert_eq!(vcpu.affinity.as_deref().expect("a list").to_string(), "2");
        assert_eq!(vcpu.cgroup, tree.id(SANDBOX));
        let fact = vcpu.vcpu.expect("a vCPU");
        assert_eq!((fact.id, fact.index, fact.stats), (0, None, None));
        assert_eq!(vcpu_ids(&facts), [(21, 0), (22, 1)]);
        assert_eq!(thread(&facts, 40).owner, Owner::Pod(tree.id(POD)));

        let paths: Vec<&str> = facts.cgroups.iter().map(|cgroup| &*cgroup.path).collect();
        assert_eq!(paths, ["/", "/kubepods", POD, SANDBOX]);
        assert_eq!(facts.cgroups[0].parent, None);
        assert_eq!(facts.cgroups[3].parent, Some(tree.id(POD)));
        let quotas = facts
            .cgroups
            .iter()
            .map(|cgroup| Some(cgroup.bandwidth?.quota_ns));
        let half = Some(Some(50_000_000));
        assert_eq!(quotas.collect::<Vec<_>>(), [None, half, half, half]);
    }
}

#[test]
fn process_with_vcpu_name_without_kvm_fds_is_not_a_vm() {
    let tree = with_pod(Tree::v2());
    tree.thread(Thread {
        tgid: 50,
        tid: 50,
        comm: b"CPU 0/KVM",
        ..VMM
    });
    tree.fds(50, &["/dev/kvm", "anon_inode:[eventfd]"]);
    let facts = read(&mut watching(&tree, POD));
    assert_eq!(facts.vms.len(), 1);
    assert_eq!(thread(&facts, 50).owner, Owner::Pod(tree.id(POD)));
    assert_eq!(thread(&facts, 50).vcpu, None);
}

#[test]
fn sparse_vcpu_ids_are_assigned_in_name_order() {
    // With three cores per socket KVM's ids have a gap, QEMU's names do not.
    let tree = with_pod(Tree::v2());
    for (tid, comm) in [(23, b"CPU 2/KVM"), (24, b"CPU 3/KVM")] {
        tree.thread(Thread { tid, comm, ..VMM });
    }
    tree.remove("proc/20/fd");
    let links = [0, 1, 2, 4].map(|id| format!("anon_inode:kvm-vcpu:{id}"));
    tree.fds(20, &links.each_ref().map(String::as_str));
    let ids = vcpu_ids(&read(&mut source(&tree)));
    assert_eq!(ids, [(21, 0), (22, 1), (23, 2), (24, 4)]);
}

#[test]
fn first_thread_with_vcpu_name_is_the_vcpu() {
    // A worker has the name of the vCPU thread that created it.
    let tree = with_pod(Tree::v2());
    tree.thread(Thread {
        tid: 19,
        start_ticks: 2000,
        ..VCPU_0
    });
    tree.thread(Thread {
        tid: 25,
        flags: USER_WORKER,
        ..VCPU_1
    });
    let ids = vcpu_ids(&read(&mut source(&tree)));
    assert_eq!(ids, [(21, 0), (22, 1)]);
}

#[test]
fn vhost_workers_belong_to_their_vm() {
    // Before v6.4: a kernel thread, in the VM's cgroup or in the root cgroup.
    let old = with_pod(Tree::v1());
    for (tid, cgroup, comm) in [
        (60, SANDBOX, b"vhost-22"),
        (61, "/", b"vhost-20"),
        (62, "/", b"vhost-99"),
    ] {
        old.thread(Thread {
            tgid: tid,
            tid,
            comm,
            cgroup,
            flags: KTHREAD,
            ..THREAD
        });
    }
    let facts = read(&mut watching(&old, POD));
    for tid in [60, 61] {
        let worker = thread(&facts, tid);
        assert_eq!(
            (worker.owner, worker.kind, worker.tgid),
            (VM, ThreadKind::Kthread, tid)
        );
    }
    assert!(facts.threads.iter().all(|thread| thread.tid != 62));

    // Since v6.4: a thread of the VMM.
    let new = with_pod(Tree::v2());
    new.thread(Thread {
        tid: 60,
        comm: b"vhost-20",
        flags: USER_WORKER,
        ..VMM
    });
    let facts = read(&mut source(&new));
    let worker = thread(&facts, 60);
    assert_eq!(
        (worker.owner, worker.kind, worker.tgid),
        (VM, ThreadKind::UserWorker, 20)
    );
}

#[test]
fn new_vhost_worker_is_read_before_next_scan() {
    let tree = with_pod(Tree::v1());
    let mut source = watching(&tree, POD);
    read(&mut source);
    tree.thread(Thread {
        tgid: 60,
        tid: 60,
        comm: b"vhost-20",
        cgroup: SANDBOX,
        flags: KTHREAD,
        ..THREAD
    });
    assert_eq!(thread(&read(&mut source), 60).owner, VM);
}

#[test]
fn new_vm_is_found_at_next_scan() {
    let tree = with_pod(Tree::v2());
    let mut source = source(&tree);
    assert_eq!(read(&mut source).vms.len(), 1);
    tree.thread(Thread {
        tgid: 70,
        tid: 70,
        comm: b"firecracker",
        ..THREAD
    });
    tree.thread(Thread {
        tgid: 70,
        tid: 71,
        comm: b"fc_vcpu 0",
        ..THREAD
    });
    tree.fds(70, &["anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0"]);
    assert_eq!(read(&mut source).vms.len(), 1);
    source.rescan();
    let facts = read(&mut source);
    assert_eq!(facts.vms.len(), 2);
    assert_eq!(thread(&facts, 71).vcpu.expect("a vCPU").id, 0);
}

#[test]
fn cpu_time_without_schedstat_is_in_ticks() {
    let tree = with_pod(Tree::v1());
    tree.remove("proc/20/task/21/schedstat");
    tree.write("proc/20/task/22/schedstat", "0 0 0\n");
    let mut source = source(&tree);
    let facts = read(&mut source);
    for tid in [21, 22] {
        let vcpu = thread(&facts, tid);
        assert_eq!((vcpu.cpu_ns, vcpu.wait_ns), (2_530_000_000, None));
    }
    assert_eq!(source.losses().unparsed, 0);
}

#[test]
fn unusual_names_are_accepted() {
    let tree = with_pod(Tree::v2());
    for (tid, comm) in [
        (23, &b") S 1 (x"[..]),
        (24, b"a\nTgid:\t1"),
        (25, b"\xff\xfe)"),
    ] {
        tree.thread(Thread { tid, comm, ..VMM });
    }
    let facts = read(&mut source(&tree));
    assert_eq!(thread(&facts, 23).comm.as_bytes(), b") S 1 (x");
    assert_eq!(thread(&facts, 24).comm.as_bytes(), b"a\nTgid:\t1");
    assert_eq!(thread(&facts, 25).comm.as_bytes(), b"\xff\xfe)");
}

#[test]
fn vanished_files_count_as_races_and_invalid_ones_do_not() {
    let tree = with_pod(Tree::v2());
    let mut source = watching(&tree, POD);
    read(&mut source);
    let before = source.losses();
    for file in ["status", "stat", "cgroup"] {
        tree.remove(&format!("proc/20/task/21/{file}"));
        tree.remove(&format!("proc/21/{file}"));
        // Listed by both the process and the cgroup.
        assert_eq!(read(&mut source).threads.len(), 3, "{file}");
        tree.thread(VCPU_0);
    }
    assert_eq!(source.races() - before.races, 6);
    assert_eq!(source.losses().unparsed, before.unparsed);

    tree.write("proc/20/task/22/schedstat", "many\n");
    tree.write("proc/22/status", "Tgid:\t20\nCpus_allowed_list:\tall\n");
    let facts = read(&mut source);
    let odd = thread(&facts, 22);
    assert_eq!((odd.wait_ns, odd.affinity.is_none()), (None, true));
    assert_eq!(odd.switches, None);
    assert_eq!(source.losses().unparsed - before.unparsed, 3);
}

#[test]
fn overhead_cgroup_outside_pod_is_watched() {
    let tree = with_pod(Tree::v1());
    tree.cgroup("/kata_overhead/x");
    tree.thread(Thread {
        tgid: 80,
        tid: 80,
        comm: b"containerd-shim",
        cgroup: "/kata_overhead/x",
        ..THREAD
    });
    let mut source = source(&tree);
    let overhead = WatchedCgroup {
        cgroup: tree.id("/kata_overhead/x"),
        pod: tree.id(POD),
    };
    source.watch(&[watched(&tree, POD), overhead]);
    let facts = read(&mut source);
    assert_eq!(thread(&facts, 80).owner, Owner::Pod(tree.id(POD)));

    let before = source.races();
    tree.remove(&tree.cgroup_dir("/kata_overhead/x"));
    assert_eq!(read(&mut source).threads.len(), 4);
    read(&mut source);
    assert_eq!(source.races(), before + 1);
}

#[test]
fn watch_reports_whether_set_changed() {
    let tree = with_pod(Tree::v2());
    let mut source = source(&tree);
    let (pod, sandbox) = (watched(&tree, POD), watched(&tree, SANDBOX));
    assert!(!source.watch(&[]));
    assert!(source.watch(&[pod]));
    assert!(!source.watch(&[pod, pod]));
    assert!(source.watch(&[pod, sandbox]));
    assert!(!source.watch(&[sandbox, pod]));
    assert!(source.watch(&[pod]));
    assert!(source.watch(&[]));
}

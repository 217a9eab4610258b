//! Tests of what is remembered of ended threads.

use std::collections::HashSet;

use virtlens_model::facts::{RetiredFact, ThreadClass, ThreadKind};
use virtlens_model::vocab::Owner;

use crate::source::{
    POD, VCPU_0, VCPU_1, VIRTIOFSD, VM, VMM, read, source, thread, watching, with_pod,
};
use crate::tree::{SWITCHES, Thread, Tree};

#[test]
fn ended_vm_keeps_its_sums_until_dropped() {
    let tree = with_pod(Tree::v2());
    let mut source = source(&tree);
    assert!(read(&mut source).retired.is_empty());
    for thread in [VCPU_0, VCPU_1, VMM] {
        tree.end(thread);
    }
    let facts = read(&mut source);
    assert!(facts.vms.is_empty() && facts.threads.is_empty());
    assert_eq!(facts.retired.len(), 3);
    let vcpu = facts
        .retired
        .iter()
        .find(|row| row.class.vcpu_id == Some(1))
        .expect("a vCPU's row");
    let expected = RetiredFact {
        class: ThreadClass {
            owner: VM,
            kind: ThreadKind::User,
            vcpu_id: Some(1),
            ..vcpu.class
        },
        threads: 1,
        cpu_ns: 5_000_000,
        wait_ns: 700,
        guest_ns: 2_000_000_000,
        switches: SWITCHES,
    };
    assert_eq!(*vcpu, expected);
    assert_eq!(vcpu.class.comm.as_bytes(), VCPU_1.comm);
    assert_eq!(read(&mut source).retired.len(), 3);
    source.forget(&HashSet::from([VM]));
    assert!(read(&mut source).retired.is_empty());
}

#[test]
fn reused_tid_is_a_new_thread() {
    let tree = with_pod(Tree::v1());
    let mut source = watching(&tree, POD);
    read(&mut source);
    tree.thread(Thread {
        start_ticks: 9000,
        run_ns: 1,
        ..VIRTIOFSD
    });
    for _ in 0..2 {
        let facts = read(&mut source);
        assert_eq!(thread(&facts, 40).cpu_ns, 1);
        assert_eq!(facts.retired.len(), 1);
        assert_eq!(
            (facts.retired[0].cpu_ns, facts.retired[0].threads),
            (5_000_000, 1)
        );
    }
}

#[test]
fn thread_that_leaves_pod_is_not_retired() {
    let tree = with_pod(Tree::v2());
    let mut source = watching(&tree, POD);
    read(&mut source);
    tree.leave(VIRTIOFSD);
    let facts = read(&mut source);
    assert_eq!((facts.threads.len(), facts.retired.len()), (3, 0));
    source.watch(&[]);
    tree.end(VIRTIOFSD);
    assert!(read(&mut source).retired.is_empty());
}

#[test]
fn zombie_counts_as_ended() {
    let tree = with_pod(Tree::v2());
    let mut source = watching(&tree, POD);
    read(&mut source);
    let zombie = b"40 (virtiofsd) Z 1 1 1 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 1000 0 0\n";
    tree.write("proc/40/stat", zombie);
    tree.leave(VIRTIOFSD);
    let facts = read(&mut source);
    assert_eq!(facts.retired.len(), 1);
    assert_eq!(facts.retired[0].class.owner, Owner::Pod(tree.id(POD)));
}

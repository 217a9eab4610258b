//! Tests on the local host. They need /proc and a mounted cpu controller, no privileges.

use std::fs;

use virtlens_host::{Cgroups, HostRoot, ProcSource, node, process, vcpu_fds};
use virtlens_model::facts::{ThreadKind, WatchedCgroup};
use virtlens_model::vocab::Owner;

/// CPU time of the calling thread, ns.
fn own_run_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("ns")
}

/// Runs until the scheduler has charged this thread another 30 ms.
fn burn() {
    let end = own_run_ns() + 30_000_000;
    while own_run_ns() < end {
        (0..100_000u64).for_each(|number| {
            std::hint::black_box(number);
        });
    }
}

fn own_tid() -> u32 {
    let link = fs::read_link("/proc/thread-self").expect("a procfs");
    let tid = link.file_name().and_then(|tid| tid.to_str());
    tid.expect("PID/task/TID").parse().expect("a number")
}

#[test]
fn cpu_time_is_between_two_reads_of_schedstat() {
    let root = HostRoot::default();
    let cgroups = Cgroups::find(&root).expect("the cpu controller");
    let tid = own_tid();
    let path = cgroups.process_path(tid).expect("a cgroup of its own");
    let cgroup = cgroups.id_of(&path).expect("a directory");
    assert_eq!(cgroups.path_of(cgroup).as_deref(), Some(&*path));
    let mut source = ProcSource::new(root, cgroups);
    source.watch(&[WatchedCgroup {
        cgroup,
        pod: cgroup,
    }]);
    burn();

    let before = own_run_ns();
    let facts = source.read().expect("a reading");
    let after = own_run_ns();

    let thread = facts
        .threads
        .iter()
        .find(|thread| thread.tid == tid)
        .expect("this thread");
    assert!(
        (before..=after).contains(&thread.cpu_ns),
        "{before} {thread:?} {after}"
    );
    assert_eq!(thread.owner, Owner::Pod(cgroup));
    assert_eq!(
        (thread.tgid, thread.kind),
        (std::process::id(), ThreadKind::User)
    );
    assert_eq!((thread.cgroup, thread.vcpu), (cgroup, None));
    assert!(thread.start_ns > 0 && thread.wait_ns.is_some());
    let affinity = thread.affinity.as_deref().expect("an affinity");
    assert!(affinity.contains(thread.pcpu.expect("a CPU")));
    let own = facts
        .cgroups
        .iter()
        .find(|fact| fact.id == cgroup)
        .expect("its cgroup");
    assert_eq!(*own.path, *path);
}

#[test]
fn ended_thread_is_retired_with_last_read_time() {
    let root = HostRoot::default();
    let cgroups = Cgroups::find(&root).expect("the cpu controller");
    let path = cgroups.process_path(std::process::id()).expect("a cgroup");
    let cgroup = cgroups.id_of(&path).expect("a directory");
    let mut source = ProcSource::new(root, cgroups);
    source.watch(&[WatchedCgroup {
        cgroup,
        pod: cgroup,
    }]);

    let (burnt, done) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let seen = std::thread::scope(|scope| {
        let named = std::thread::Builder::new().name("vl-short".to_owned());
        let spawned = named.spawn_scoped(scope, || {
            burn();
            burnt.wait();
            done.wait();
        });
        let handle = spawned.expect("a thread");
        burnt.wait();
        let facts = source.read().expect("a reading");
        done.wait();
        handle.join().expect("no panic");
        let mut threads = facts.threads.iter();
        let short = threads.find(|thread| thread.comm.as_bytes() == b"vl-short");
        short.expect("the thread").cpu_ns
    });
    // `join` returns a moment before the kernel has released the thread.
    let retired = (0..1000).find_map(|_| {
        let facts = source.read().expect("a reading");
        facts
            .retired
            .into_iter()
            .find(|row| row.class.comm.as_bytes() == b"vl-short")
    });
    let retired = retired.expect("a row for the ended thread");
    assert_eq!(
        (retired.threads, retired.class.owner),
        (1, Owner::Pod(cgroup))
    );
    assert!(
        retired.cpu_ns >= seen && seen >= 30_000_000,
        "{retired:?} {seen}"
    );
}

#[test]
fn cpu_time_of_own_cgroup_rises() {
    let cgroups = Cgroups::find(&HostRoot::default()).expect("the cpu controller");
    let path = cgroups.process_path(std::process::id()).expect("a cgroup");
    let before = cgroups.usage_ns(&path).expect("CPU accounting");
    burn();
    assert!(cgroups.usage_ns(&path).expect("CPU accounting") > before);
}

#[test]
fn own_process_and_node_are_read() {
    let root = HostRoot::default();
    let own = process(&root, std::process::id()).expect("this process");
    assert_eq!(own.args, std::env::args().collect::<Vec<_>>());
    assert_eq!(
        own.exe.as_deref(),
        std::env::current_exe().expect("a file").to_str()
    );
    assert_eq!(
        vcpu_fds(&root, std::process::id()).expect("own descriptors"),
        0
    );
    let node = node(&root).expect("this node");
    assert!(!node.online.is_empty() && !node.kernel.is_empty());
    assert!(node.boot_unix_s.is_some());
}

//! A pass over more tasks than one run of the program emits.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Program, libbpf_sys};
use virtlens::collect::Collector;
use virtlens_abi::Walk;
use virtlens_model::snapshot::Snapshot;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_tests::reader::options;
use virtlens_tests::{Minivm, need, process};

fn ready(test: &str) -> bool {
    need::all(test, [need::root(), need::kvm(), need::bpf()])
}

/// The thread ids in a snapshot of a VM, including duplicates.
fn emitted(snapshot: &Snapshot, pid: u32) -> Vec<u32> {
    let vm = snapshot.vms.iter().find(|vm| vm.pid == pid);
    let threads = &vm.expect("it is found").threads;
    threads.iter().map(|thread| thread.tid).collect()
}

/// Asserts that all of `threads` are in the snapshot, and none twice.
#[track_caller]
fn assert_emitted(snapshot: &Snapshot, pid: u32, threads: &BTreeSet<u32>) {
    let emitted = emitted(snapshot, pid);
    let once: BTreeSet<u32> = emitted.iter().copied().collect();
    assert_eq!(once.len(), emitted.len(), "each is emitted once");
    let missing: Vec<_> = threads.difference(&once).collect();
    assert!(missing.is_empty(), "of pid {pid}: {missing:?}");
}

fn threads(vm: &Minivm) -> BTreeSet<u32> {
    let tids = process::tids(vm.pid());
    tids.into_iter().map(i32::cast_unsigned).collect()
}

/// Where the kernel allows it, the pass walks the task list itself instead of using an
/// iterator.
#[test]
fn pass_walks_in_bpf_if_supported() {
    if !ready("pass_walks_in_bpf_if_supported") {
        return;
    }
    let options = options();
    let mut collector = Collector::open(&options).expect("the host can be read");
    let snapshot = collector.collect_judged();
    let programs = &snapshot.programs;
    let walks = programs.iter().any(|one| one.program == "walk_tasks");
    let facts = KernelFacts::probe(Path::new("/"));
    let may_walk = facts.task_walk && options.loader.lacks().is_none();
    println!("walks: {walks}");
    assert_eq!(walks, may_walk);
    assert_ne!(
        walks,
        programs.iter().any(|one| one.program == "sample_tasks")
    );
}

/// Upper bound of verified instructions. The verifier gives up after a million
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, `include/linux/bpf.h`, since v5.2). Each kernel
/// explores other paths, and the next one may explore more.
const FOLLOWED: u32 = 100_000;

#[test]
fn verified_instructions_stay_below_a_tenth_of_limit() {
    if !need::all(
        "verified_instructions_stay_below_a_tenth_of_limit",
        [need::root(), need::bpf()],
    ) {
        return;
    }
    // Another agent may run on this host. Ids only rise.
    let before = ProgInfoIter::default().map(|program| program.id).max();
    let mut collector = Collector::open(&options()).expect("the host can be read");
    let snapshot = collector.collect_judged();
    let own = &snapshot.programs;
    assert!(!own.is_empty(), "programs are loaded");
    let is_own = |name: &str| own.iter().any(|one| one.program == name);
    let followed: Vec<_> = ProgInfoIter::default()
        .filter(|program| Some(program.id) > before)
        .map(|program| (program.name, program.verified_insns))
        .filter(|(name, _)| is_own(&name.to_string_lossy()))
        .collect();
    println!("{followed:?}");
    assert!(!followed.is_empty(), "the kernel lists them");
    // aba64c7da983 ("bpf: Add verified_insns to bpf_prog_info and fdinfo")
    let is_counted = followed.iter().any(|(_, insns)| *insns > 0);
    let is_counted = need::that(
        "verified_insns",
        is_counted,
        "the kernel is older than v5.16",
    );
    if need::all(
        "verified_instructions_stay_below_a_tenth_of_limit",
        [is_counted],
    ) {
        let over = followed.iter().find(|(_, insns)| *insns >= FOLLOWED);
        assert!(over.is_none(), "{over:?}");
    }
}

/// One process has more threads than one run emits, and its threads end all the time,
/// including those with which the next run would resume.
#[test]
fn vm_with_many_threads_is_read_completely() {
    if !ready("vm_with_many_threads_is_read_completely") {
        return;
    }
    let mut many = Minivm::start(["--vcpus", "2", "--thread", "pool=7000"]);
    let behind = Minivm::start(["--vcpus", "1"]);
    let (pid, stay) = (many.pid(), threads(&many));
    assert!(stay.len() > 7000);
    let mut collector = Collector::open(&options()).expect("the host can be read");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Bounded, in case the other side fails.
            for _ in 0..500 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                many.spawn(20, 1, "passing");
            }
        });
        for _ in 0..10 {
            let snapshot = collector.collect();
            assert_emitted(&snapshot, pid, &stay);
            assert_emitted(&snapshot, behind.pid(), &threads(&behind));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

const OTHERS: usize = 9000;

/// Between two VMs there are more tasks that belong to no VM than one run visits.
#[test]
fn vm_after_many_other_tasks_is_read_completely() {
    if !ready("vm_after_many_other_tasks_is_read_completely") {
        return;
    }
    let first = Minivm::start(["--vcpus", "2"]);
    let end = Barrier::new(OTHERS + 1);
    thread::scope(|scope| {
        for _ in 0..OTHERS {
            let idle = Builder::new().stack_size(16 << 10);
            idle.spawn_scoped(scope, || end.wait())
                .expect("as many threads can be had");
        }
        let last = Minivm::start(["--vcpus", "2"]);
        let mut collector = Collector::open(&options()).expect("the host can be read");
        for _ in 0..3 {
            let snapshot = collector.collect();
            for vm in [&first, &last] {
                assert_emitted(&snapshot, vm.pid(), &threads(vm));
            }
        }
        end.wait();
    });
}

/// One run of the program, with the agent's options.
#[expect(unsafe_code, reason = "a system call")]
fn run(program: BorrowedFd<'_>, walk: &mut Walk) {
    let mut how = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: std::ptr::from_mut(walk).cast(),
        ctx_size_in: u32::try_from(size_of_val(walk)).expect("it is small"),
        ..Default::default()
    };
    // SAFETY: the program reads and writes `walk`, which lives as long as the call.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut how) };
    assert_eq!(error, 0);
}

/// If the thread that a run named has exited, the next run visits no task. Resuming with
/// another task could emit tasks twice.
#[test]
fn walk_resumes_at_named_task_or_restarts() {
    let walks = KernelFacts::probe(Path::new("/")).task_walk;
    let walks = need::that("task_walk", walks, "the kernel lets no program walk");
    if !ready("walk_resumes_at_named_task_or_restarts")
        || !need::all("walk_resumes_at_named_task_or_restarts", [walks])
    {
        return;
    }
    let many = Minivm::start(["--vcpus", "2", "--thread", "pool=7000"]);
    // Independent of the loader of the suite: the kernel alone decides whether it can
    // walk.
    let mut options = options();
    options.loader = Loader::Libbpf;
    let mut collector = Collector::open(&options).expect("the host can be read");
    collector.collect();
    let all = ProgInfoIter::default();
    let walks = all.filter(|program| program.name == "walk_tasks");
    let newest = walks.max_by_key(|program| program.id);
    let program = Program::fd_from_id(newest.expect("it is loaded").id).expect("it is there");
    let program = program.as_fd();

    let mut first = Walk {
        tid: 0,
        former_threads: 0,
        start_ns: 0,
        seen: 0,
    };
    run(program, &mut first);
    let is_among = threads(&many).contains(&first.tid);
    assert!(
        is_among && first.seen > 0,
        "the first run stops among its threads"
    );

    let mut second = first;
    run(program, &mut second);
    assert!(second.seen > 0);
    assert_ne!(second.tid, first.tid);

    for gone in [
        Walk {
            tid: u32::MAX,
            ..first
        },
        Walk {
            start_ns: first.start_ns + 1,
            ..first
        },
    ] {
        let mut walk = gone;
        run(program, &mut walk);
        assert_eq!((walk.tid, walk.seen), (gone.tid, 0));
    }
    // The agent's own passes still work.
    assert_emitted(&collector.collect(), many.pid(), &threads(&many));
}

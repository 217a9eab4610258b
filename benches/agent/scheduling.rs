//! Cost that the agent adds to the two operations that all tasks of a host perform all
//! the time: context switches and migrations.

use std::hint::spin_loop;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::thread::gettid;
use virtlens::collect::Collector;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::trace::Tracer;
use virtlens_tests::Minivm;
use virtlens_tests::process::set_affinity;

use crate::bpf;
use crate::clock;
use crate::stats::{Compared, Spread, compare, real};

/// Cost of a migration.
pub(crate) struct Migration {
    /// Cost with the agent and without.
    pub(crate) compared: Compared,
    /// Part of the hook alone, ns.
    pub(crate) hook_ns: Option<f64>,
}

/// Round trips per measurement: about 0.2 s.
const ROUND_TRIPS: u32 = 40_000;

/// Moves per series, about 3 ms, and series per measurement.
const MOVES: u32 = 1000;
const BOUTS: u32 = 100;

/// CPU time of a context switch, ns: two threads on one CPU wake each other over pipes.
/// `agent` loads the programs; dropping its result unloads them.
pub(crate) fn context_switch<A>(mut agent: impl FnMut() -> A) -> Compared {
    compare(|with| {
        let _agent = with.then(&mut agent);
        let start_ns = clock::process_ns();
        let switches = play();
        real(clock::process_ns() - start_ns) / f64::from(switches)
    })
}

/// A trace of one VM for [`context_switch`]: `tids` are of an idle VM, so that the
/// measured threads are not traced, or of the measured threads.
pub(crate) fn tracer(tids: &[u32]) -> Tracer {
    let kernel = KernelFacts::probe(Path::new("/"));
    let mut tracer = Tracer::load(Loader::default(), &kernel).expect("the kernel takes programs");
    tracer.follow(tids, &[]).expect("there is room for a VM");
    tracer.attach().expect("the kernel takes programs");
    tracer
}

/// CPU time of a migration, ns: a runnable, waiting thread is moved between two busy
/// CPUs. So no CPU has to be woken or stopped; that would take twenty times as long and
/// vary by more than the cost to be measured. `None` on a host of one CPU.
pub(crate) fn migration(mut agent: impl FnMut() -> Collector) -> Option<Migration> {
    of_a_spinning_thread(|tid| moved_and_hook(tid, &mut agent))
}

fn of_a_spinning_thread<T>(measure: impl FnOnce(i32) -> T) -> Option<T> {
    has_two_cpus().then(|| {
        let is_over = AtomicBool::new(false);
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let tid = gettid().as_raw_pid();
                sender.send(tid).expect("it is awaited");
                while !is_over.load(Ordering::Relaxed) {
                    spin_loop();
                }
            });
            let measured = measure(receiver.recv().expect("it sends its id"));
            is_over.store(true, Ordering::Relaxed);
            measured
        })
    })
}

/// The same with an empty program at each migration instead of the agent: the lower bound
/// of any program's cost.
pub(crate) fn migration_with_an_empty_program() -> Option<Compared> {
    let object = bpf::load("empty.bpf.c");
    of_a_spinning_thread(|tid| {
        moved(tid, || {
            let mut programs = object.progs_mut();
            let program = programs.next().expect("it has one");
            program.attach().expect("it can be attached")
        })
    })
}

/// The same with a spinning vCPU, which the agent follows.
pub(crate) fn vcpu_migration(mut agent: impl FnMut() -> Collector) -> Option<Migration> {
    has_two_cpus().then(|| {
        let vm = Minivm::start(["--vcpus", "1", "--start", "spin"]);
        moved_and_hook(vm.ready.vcpus[0].tid, &mut agent)
    })
}

fn has_two_cpus() -> bool {
    thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

fn moved_and_hook(tid: i32, agent: &mut impl FnMut() -> Collector) -> Migration {
    let compared = moved(tid, &mut *agent);
    let hook_ns = to_and_fro(tid, |carry| hook_ns(&mut agent(), carry));
    Migration { compared, hook_ns }
}

fn moved<A>(tid: i32, mut agent: impl FnMut() -> A) -> Compared {
    to_and_fro(tid, |carry| {
        compare(|with| {
            let _agent = with.then(&mut agent);
            carry()
        })
    })
}

/// Passes `measure` a function that moves a thread between two busy CPUs.
fn to_and_fro<T>(tid: i32, measure: impl FnOnce(&dyn Fn() -> f64) -> T) -> T {
    wait_for_turn(tid);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| keep_busy(1, &is_over));
        let carry = || {
            let mover = scope.spawn(move || carry(tid));
            mover.join().expect("a thread may be moved")
        };
        let measured = measure(&carry);
        is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// The kernel's run time of the hook while `moves` runs, ns per run, including the cost
/// of counting. `None` if the kernel does not count it.
fn hook_ns(collector: &mut Collector, moves: impl FnOnce() -> f64) -> Option<f64> {
    let mut cost = || {
        let snapshot = collector.collect();
        let hook = snapshot
            .programs
            .iter()
            .find(|one| one.program == "on_migrate");
        hook.map(|hook| (hook.runs, hook.run_ns))
    };
    let (before, after) = bpf::with_run_times(|| {
        let before = cost();
        moves();
        (before, cost())
    })?;
    let ((runs, ns), (runs_before, ns_before)) = (after?, before?);
    let runs = runs.checked_sub(runs_before).filter(|runs| *runs > 0)?;
    Some(real(ns - ns_before) / real(runs))
}

/// Makes a thread run only on otherwise idle CPUs.
fn wait_for_turn(tid: i32) {
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: `idle` is a live sched_param.
    let failed = unsafe { libc::sched_setscheduler(tid, libc::SCHED_IDLE, &raw const idle) };
    assert_eq!(failed, 0, "everybody may wait");
}

fn keep_busy(cpu: usize, is_over: &AtomicBool) {
    set_affinity(0, &[cpu]);
    while !is_over.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// Moves a thread to and fro; returns the CPU time of one move, ns. The lower quartile of
/// many series: other work disturbs the slower ones.
fn carry(tid: i32) -> f64 {
    set_affinity(0, &[0]);
    let bout = |_| {
        let ((), bout_ns) = clock::thread_ns(|| {
            for step in 0..MOVES {
                set_affinity(tid, &[step as usize % 2]);
            }
        });
        real(bout_ns) / f64::from(MOVES)
    };
    Spread::of((0..BOUTS).map(bout)).low
}

/// Plays ping-pong; returns the number of context switches.
fn play() -> u32 {
    let (there, back) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
    let (hit, hit_back) = ((there.0, back.1), (back.0, there.1));
    let other = thread::spawn(move || rally(hit.0, hit.1, false));
    let one = thread::spawn(move || rally(hit_back.0, hit_back.1, true));
    for player in [one, other] {
        player.join().expect("a player plays to the end");
    }
    2 * ROUND_TRIPS
}

fn rally(mut from: PipeReader, mut to: PipeWriter, serves: bool) {
    set_affinity(0, &[0]);
    let mut ball = [0];
    for _ in 0..ROUND_TRIPS {
        if serves {
            to.write_all(&ball).expect("the other reads");
        }
        from.read_exact(&mut ball).expect("the other writes");
        if !serves {
            to.write_all(&ball).expect("the other reads");
        }
    }
}

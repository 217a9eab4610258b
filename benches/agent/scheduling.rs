//! What the agent adds to the two things that every task of a host does all
//! the time: to hand over its CPU, and to move to another.

use std::hint::spin_loop;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use virtlens_tests::process::set_affinity;

use crate::clock;
use crate::stats::{Compared, Spread, compare, real};

/// Round trips of a measurement: some 0.2 s.
const ROUND_TRIPS: u32 = 40_000;

/// Moves of a bout, some 3 ms, and bouts of a measurement.
const MOVES: u32 = 1000;
const BOUTS: u32 = 100;

/// A context switch, ns of CPU time: two threads on one CPU that wake each
/// other over pipes. `agent` loads it; it goes with what is returned.
pub(crate) fn context_switch<A>(mut agent: impl FnMut() -> A) -> Compared {
    compare(|with| {
        let _agent = with.then(&mut agent);
        let start_ns = clock::process_ns();
        let switches = play();
        real(clock::process_ns() - start_ns) / f64::from(switches)
    })
}

/// A migration, ns of CPU time: of a thread that waits for its turn and is
/// moved from one busy CPU to the other. So no CPU has to be woken up or
/// stopped for it, which takes twenty times as long and scatters by more than
/// what is looked for. `None` on a host of one CPU.
pub(crate) fn migration<A>(mut agent: impl FnMut() -> A) -> Option<Compared> {
    thread::available_parallelism()
        .ok()
        .filter(|cpus| cpus.get() > 1)?;
    Some(compare(|with| {
        let _agent = with.then(&mut agent);
        let is_over = AtomicBool::new(false);
        let (tell, told) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(|| wait_for_turn(&tell, &is_over));
            scope.spawn(|| keep_busy(1, &is_over));
            let moved = told.recv().expect("it tells its id");
            let mover = scope.spawn(move || carry(moved));
            let move_ns = mover.join();
            is_over.store(true, Ordering::Relaxed);
            move_ns.expect("a thread may be moved")
        })
    }))
}

/// Wants to run, but only where nobody else does.
fn wait_for_turn(tell: &mpsc::SyncSender<i32>, is_over: &AtomicBool) {
    let idle = libc::sched_param { sched_priority: 0 };
    // SAFETY: `idle` is a live sched_param; 0 is the calling thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) };
    assert_eq!(failed, 0, "everybody may wait");
    // SAFETY: gettid has no preconditions.
    tell.send(unsafe { libc::gettid() }).expect("it is awaited");
    while !is_over.load(Ordering::Relaxed) {
        spin_loop();
    }
}

fn keep_busy(cpu: usize, is_over: &AtomicBool) {
    set_affinity(0, &[cpu]);
    while !is_over.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// Moves a thread to and fro; CPU time of one move, ns. The lower quartile of
/// many bouts: in the others something else came in between.
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

/// Plays ping-pong; how many context switches that took.
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

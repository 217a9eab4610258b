//! Tells the runner that every CPU still runs threads.
//!
//! Under emulation a CPU may be lost: in a nested guest that spins, no interrupt has
//! reached it any more. The machine then uses its CPU as ever, and says nothing.

use std::thread::{available_parallelism, sleep, spawn};

use anyhow::Context;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use virtlens_vmtest::report::{HEARTBEAT, Line};

/// Goes from CPU to CPU for as long as the program runs.
pub(crate) fn start() -> anyhow::Result<()> {
    let cpus = available_parallelism().context("no CPUs")?.get();
    spawn(move || {
        loop {
            for cpu in 0..cpus {
                match visit(cpu) {
                    // One that is offline by now is not lost.
                    Ok(()) | Err(Errno::INVAL) => {}
                    Err(error) => return println!("no heartbeat: {error}"),
                }
            }
            println!("{}", Line::Alive);
            sleep(HEARTBEAT);
        }
    });
    Ok(())
}

/// Back when the calling thread has run on the CPU.
fn visit(cpu: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)
}

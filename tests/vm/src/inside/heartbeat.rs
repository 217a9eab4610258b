//! Tells the runner that every CPU still runs threads.
//!
//! Under emulation a CPU may be lost: in a nested guest that spins, no interrupt has
//! reached it any more. The machine then uses its CPU as ever, and says nothing.

use std::sync::{Arc, Barrier};
use std::thread::{available_parallelism, sleep, spawn};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use virtlens_vmtest::report::{HEARTBEAT, Line};

/// A thread on each CPU: they meet, and one of them says so. They stay where they are,
/// since whoever moves interrupts the CPUs' guests.
pub(crate) fn start() -> anyhow::Result<()> {
    let cpus = available_parallelism().context("no CPUs")?.get();
    let all = Arc::new(Barrier::new(cpus));
    for cpu in 0..cpus {
        let all = Arc::clone(&all);
        spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu);
            if let Err(error) = sched_setaffinity(None, &only) {
                return println!("no heartbeat: CPU {cpu}: {error}");
            }
            loop {
                if all.wait().is_leader() {
                    println!("{}", Line::Alive);
                }
                sleep(HEARTBEAT);
            }
        });
    }
    Ok(())
}

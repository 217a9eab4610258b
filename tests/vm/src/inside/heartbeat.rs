//! Reports to the runner that every CPU still runs threads.
//!
//! Under emulation a CPU may be lost: interrupts stopped reaching a CPU in a nested guest
//! that spins. The machine then still uses CPU time and reports no error.

use std::sync::{Arc, Barrier};
use std::thread::{available_parallelism, sleep, spawn};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use virtlens_vmtest::report::{HEARTBEAT, Line};

/// Starts a thread on each CPU. The threads meet, and one of them reports. They are
/// pinned, because moving a thread interrupts the guests of the CPUs.
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

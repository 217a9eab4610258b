//! Reports to the runner which CPUs still run threads.
//!
//! Under emulation a CPU may be lost: interrupts stopped reaching a CPU in a nested guest
//! that spins. The machine then still uses CPU time and reports no error.

use std::thread::{available_parallelism, sleep, spawn};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use virtlens_vmtest::report::{HEARTBEAT, Line};

/// Starts a thread on each CPU, which reports. It is pinned, because moving a thread
/// interrupts the guests of the CPUs.
pub(crate) fn start() -> anyhow::Result<()> {
    let cpus = available_parallelism().context("no CPUs")?.get();
    for cpu in 0..u32::try_from(cpus)? {
        spawn(move || {
            let mut only = CpuSet::new();
            only.set(cpu as usize);
            if let Err(error) = sched_setaffinity(None, &only) {
                return println!("no heartbeat: CPU {cpu}: {error}");
            }
            loop {
                println!("{}", Line::Alive(cpu));
                sleep(HEARTBEAT);
            }
        });
    }
    Ok(())
}

//! Reports to the runner which CPUs still run threads.
//!
//! Under emulation a CPU may be lost: interrupts stopped reaching a CPU in a nested guest
//! that spins. The machine then still uses CPU time and reports no error.

use std::fs;
use std::thread::{sleep, spawn};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use virtlens_vmtest::report::{HEARTBEAT, Line};

/// The CPUs that are online, as a list: `0-2,5`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Starts a thread on each CPU, which reports. It is pinned, because moving a thread
/// interrupts the guests of the CPUs.
pub(crate) fn start() -> anyhow::Result<()> {
    // An isolated CPU is not in this process's affinity.
    for cpu in list(&fs::read_to_string(ONLINE)?)? {
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

fn list(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>()
                .with_context(|| format!("{ONLINE}: {range:?}"))
        };
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_cpus_has_ranges_and_single_ones() {
        assert_eq!(list("0-2,5\n").expect("a list"), [0, 1, 2, 5]);
        assert_eq!(list("0\n").expect("a list"), [0]);
        assert!(list("").is_err() && list("0-x").is_err());
    }
}

//! Reports to the runner which CPUs still run threads.
//!
//! Under emulation a CPU may be lost: interrupts stopped reaching a CPU in a nested guest
//! that spins. The machine then still uses CPU time and reports no error.

use std::fs;
use std::thread::{sleep, spawn};

use anyhow::ensure;
use rustix::thread::{CpuSet, sched_setaffinity};
use virtlens_vmtest::report::{HEARTBEAT, Line};

/// Starts a thread on each CPU, which reports. It is pinned, because moving a thread
/// interrupts the guests of the CPUs.
pub(crate) fn start() -> anyhow::Result<()> {
    // An isolated CPU is not in this process's affinity.
    let online = online(&fs::read_to_string("/proc/stat")?);
    ensure!(!online.is_empty(), "/proc/stat: no CPUs");
    for cpu in online {
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

/// The CPUs in /proc/stat, which has a line for each CPU that is online, and one for all.
fn online(stat: &str) -> Vec<u32> {
    let cpu = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    stat.lines().filter_map(cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_lines_of_stat_with_number() {
        let stat = "cpu  9 0 9\ncpu0 3 0 3\ncpu2 6 0 6\nintr 7 1\nctxt 8\n";
        assert_eq!(online(stat), [0, 2]);
    }
}

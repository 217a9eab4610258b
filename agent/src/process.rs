//! Resource usage and build information of the agent's process.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::geteuid;
use rustix::thread::disable_transparent_huge_pages;
use rustix::time::{ClockId, clock_gettime};
use virtlens_export::{Agent, Process, Recording};

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the build; empty if the build did not set it.
pub const REVISION: &str = match option_env!("VIRTLENS_REVISION") {
    Some(revision) => revision,
    None => "",
};

/// The compiler of the build.
pub const RUSTVERSION: &str = env!("VIRTLENS_RUSTC");

/// This program. The path works also after an upgrade has replaced the file.
pub const EXECUTABLE: &str = "/proc/self/exe";

static START_UNIX_NS: OnceLock<Option<u64>> = OnceLock::new();

/// Records the present time as the program's start. Later calls have no effect.
pub fn started() {
    START_UNIX_NS.get_or_init(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since_epoch.as_nanos()).ok()
    });
}

/// Disables transparent huge pages for this process. Most distributions enable them for
/// every process, and a heap with free space then uses up to 2 MiB for 4 KiB of data. If
/// the kernel denies it, the agent uses more memory but works the same.
pub fn keep_to_small_pages() {
    // prctl(2), since Linux 3.15.
    disable_transparent_huge_pages(true).ok();
}

/// Data on the agent itself, after a collection that took `collection_ns`.
pub fn agent(collection_ns: u64, recording: Option<Recording>) -> Agent {
    Agent {
        version: VERSION,
        revision: REVISION,
        rustversion: RUSTVERSION,
        collection_ns,
        recording,
        process: Process {
            cpu_ns: cpu_ns(),
            resident_bytes: resident_bytes(),
            open_fds: open_fds(),
            start_unix_ns: START_UNIX_NS.get().copied().flatten(),
        },
    }
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// CPU clock of the process: user and system time of all threads, exact to the ns, while
/// /proc/self/stat counts in ticks.
fn cpu_ns() -> Option<u64> {
    let time = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()?;
    u64::try_from(time.as_nanos()).ok()
}

/// `VmRSS` from the agent's own status file, which is in kB for every page size.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

fn open_fds() -> Option<u64> {
    let fds = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One of them belongs to the directory that is being read.
    fds.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::{agent, started};

    #[test]
    fn own_process_reports_its_usage() {
        started();
        let process = agent(0, None).process;
        assert!(process.cpu_ns.expect("a clock") > 0);
        assert!(process.resident_bytes.expect("a status") > 100 << 10);
        assert!(process.open_fds.expect("a directory") >= 3);
        assert!(process.start_unix_ns.expect("a time") > 1_700_000_000_000_000_000);
    }
}

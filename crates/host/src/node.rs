//! Facts about the machine.

use virtlens_model::vocab::CpuSet;

use crate::error::Error;
use crate::root::{HostRoot, SMALL_FILE, read, read_as};

/// /proc/stat has a line for every CPU and a count for every interrupt.
pub(crate) const STAT_FILE: usize = 4 << 20;

/// `USER_HZ`, the unit of times in /proc/PID/stat: 100 on x86, arm64, riscv,
/// s390 and power (include/asm-generic/param.h).
const USER_HZ: u64 = 100;

/// Facts about the machine that do not change while it runs, except for
/// CPU hotplug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// The host name in this process's UTS namespace: a pod's own name, unless
    /// the pod uses the host's network.
    pub hostname: String,
    /// The kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// The online CPUs.
    pub online: CpuSet,
    /// Clock ticks in a second, the unit of times in /proc/PID/stat.
    pub ticks_per_s: u64,
    /// Boot time, seconds since 1970; `None` if unknown.
    pub boot_unix_s: Option<u64>,
}

/// Reads the facts about the machine.
///
/// # Errors
/// If a file is missing or unreadable: /proc or /sys is not mounted.
pub fn node(root: &HostRoot) -> Result<NodeFacts, Error> {
    let online = root.sys("devices/system/cpu/online");
    let boot_unix_s = read(&root.proc("stat"), STAT_FILE)
        .ok()
        .and_then(|stat| parse_boot_time(&stat));
    Ok(NodeFacts {
        hostname: one_line(root, "sys/kernel/hostname")?,
        kernel: one_line(root, "sys/kernel/osrelease")?,
        online: read_as(&online, "a CPU list like 0-3,8", |bytes| {
            std::str::from_utf8(bytes).ok()?.parse().ok()
        })?,
        ticks_per_s: ticks_per_s(root),
        boot_unix_s,
    })
}

/// The random id of this boot; `None` if it cannot be read.
pub fn boot_id(root: &HostRoot) -> Option<String> {
    one_line(root, "sys/kernel/random/boot_id").ok()
}

/// The CPUs that run without a tick while they have one runnable thread (`nohz_full`);
/// empty if unknown.
pub fn nohz_full(root: &HostRoot) -> CpuSet {
    let list = root.sys("devices/system/cpu/nohz_full");
    let bytes = read(&list, SMALL_FILE).unwrap_or_default();
    parse_nohz_full(&bytes)
}

/// Parses a `nohz_full` file. Kernels write `(null)` if there is no list
/// (`print_cpus_nohz_full`, `drivers/base/cpu.c`).
pub fn parse_nohz_full(bytes: &[u8]) -> CpuSet {
    let list = std::str::from_utf8(bytes).unwrap_or_default();
    list.trim().parse().unwrap_or_default()
}

/// Clock ticks per second, from the auxiliary vector of this process. Falls back to
/// `USER_HZ` if it cannot be read.
pub(crate) fn ticks_per_s(root: &HostRoot) -> u64 {
    read(&root.proc("self/auxv"), SMALL_FILE)
        .ok()
        .and_then(|auxv| parse_clock_ticks(&auxv))
        .unwrap_or(USER_HZ)
}

fn one_line(root: &HostRoot, below_proc: &str) -> Result<String, Error> {
    let bytes = read(&root.proc(below_proc), SMALL_FILE)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Returns `AT_CLKTCK` (17, include/uapi/linux/auxvec.h) of an auxiliary vector, which
/// consists of pairs of native words.
pub fn parse_clock_ticks(auxv: &[u8]) -> Option<u64> {
    const AT_CLKTCK: u64 = 17;
    let (words, _) = auxv.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs
        .iter()
        .map(|[kind, value]| (u64::from_ne_bytes(*kind), u64::from_ne_bytes(*value)))
        .find(|(kind, value)| *kind == AT_CLKTCK && (1..=1_000_000).contains(value))
        .map(|(_, value)| value)
}

/// Parses the `btime` line of /proc/stat: boot time, seconds since 1970.
pub fn parse_boot_time(stat: &[u8]) -> Option<u64> {
    stat.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"btime "))
        .and_then(crate::root::parse_number)
}

#[cfg(test)]
mod tests {
    use super::{parse_boot_time, parse_clock_ticks, parse_nohz_full};

    #[test]
    fn nohz_full_is_a_list_or_nothing() {
        assert_eq!(parse_nohz_full(b"1-3,7\n").to_string(), "1-3,7");
        for none in [&b"\n"[..], b"  (null)\n", b""] {
            assert!(parse_nohz_full(none).is_empty(), "{none:?}");
        }
    }

    #[test]
    fn clock_ticks_are_found_in_an_auxiliary_vector() {
        let words = [33u64, 0x7ffd, 17, 250, 0, 0];
        let auxv: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(parse_clock_ticks(&auxv), Some(250));
        assert_eq!(parse_clock_ticks(&auxv[..20]), None);
        let zero: Vec<u8> = [17u64, 0]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        assert_eq!(parse_clock_ticks(&zero), None);
    }

    #[test]
    fn boot_time_is_parsed_from_btime_line() {
        let stat = b"cpu  1 2 3\nintr 5 0\nctxt 9\nbtime 1700000000\nprocesses 7\n";
        assert_eq!(parse_boot_time(stat), Some(1_700_000_000));
        assert_eq!(parse_boot_time(b"xbtime 5\n"), None);
    }
}

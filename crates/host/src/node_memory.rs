//! Memory of the node: how much is available, and whether tasks wait for it.

use crate::root::{HostRoot, SMALL_FILE, read, read_as};

/// Memory of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMemory {
    /// Memory of the node, bytes.
    pub total_bytes: u64,
    /// Memory that a new process can have without swapping, bytes.
    pub available_bytes: u64,
}

/// Reads `/proc/meminfo`; `None` if it cannot be read.
pub fn node_memory(root: &HostRoot) -> Option<NodeMemory> {
    parse_meminfo(&read(&root.proc("meminfo"), SMALL_FILE).ok()?)
}

/// Share of the last 10 s in which at least one task of the node waited for memory, %; `None`
/// if the kernel does not count it (`CONFIG_PSI`, `psi=1`).
pub fn memory_pressure(root: &HostRoot) -> Option<f64> {
    let file = root.proc("pressure/memory");
    read_as(&file, "some avg10=PERCENT …", parse_pressure).ok()
}

/// Parses `/proc/meminfo` (`meminfo_proc_show`, fs/proc/meminfo.c).
pub fn parse_meminfo(bytes: &[u8]) -> Option<NodeMemory> {
    let text = std::str::from_utf8(bytes).ok()?;
    let bytes_of = |name: &str| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(NodeMemory {
        total_bytes: bytes_of("MemTotal")?,
        available_bytes: bytes_of("MemAvailable")?,
    })
}

/// Parses `avg10` of the line `some` of a pressure file, % (`psi_show`, kernel/sched/psi.c).
pub fn parse_pressure(bytes: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let mut words = lines
        .find_map(|line| line.strip_prefix("some "))?
        .split(' ');
    let percent: f64 = words
        .find_map(|word| word.strip_prefix("avg10="))?
        .parse()
        .ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::{NodeMemory, parse_meminfo, parse_pressure};

    #[test]
    fn total_and_available_memory_are_in_bytes() {
        let text = b"MemTotal:       16 kB\nMemFree:        1 kB\nMemAvailable:   8 kB\n";
        let memory = NodeMemory {
            total_bytes: 16 << 10,
            available_bytes: 8 << 10,
        };
        assert_eq!(parse_meminfo(text), Some(memory));
        assert_eq!(parse_meminfo(b"MemTotal: 16 kB\n"), None);
        let huge = b"MemTotal: 18446744073709551615 kB\nMemAvailable: 8 kB\n";
        assert_eq!(parse_meminfo(huge), None);
    }

    #[test]
    fn pressure_is_that_of_some_tasks_over_ten_seconds() {
        let text = b"some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=99.00 total=1\n";
        assert_eq!(parse_pressure(text), Some(12.34));
        for broken in [
            &b""[..],
            b"full avg10=1.00\n",
            b"some avg10=NaN\n",
            b"some avg10=101\n",
        ] {
            assert_eq!(parse_pressure(broken), None, "{broken:?}");
        }
    }
}

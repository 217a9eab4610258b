//! Reads the memory controller's files.

use std::path::Path;

use crate::cgroupfs::{CgroupVersion, Cgroups};
use crate::root::read_as;

impl Cgroups {
    /// Memory of a cgroup, bytes by NUMA node. A threaded cgroup has no memory
    /// controller, so the value comes from the nearest ancestor that has it. `None` if
    /// there is none, and on v1, whose controllers are in separate hierarchies.
    pub fn memory_by_node(&self, path: &str) -> Option<Vec<(u32, u64)>> {
        if self.version != CgroupVersion::V2 {
            return None;
        }
        Path::new(path).ancestors().find_map(|level| {
            let level = level.to_str().filter(|level| *level != "/")?;
            let file = self.dir(&self.cpu, level).ok()?.join("memory.numa_stat");
            read_as(&file, "KEY N0=BYTES …", parse_numa_stat).ok()
        })
    }
}

/// Parses a `memory.numa_stat` file: bytes of anonymous memory and page cache (which
/// includes shared memory) by NUMA node (Documentation/admin-guide/cgroup-v2.rst, since
/// v5.9).
pub fn parse_numa_stat(bytes: &[u8]) -> Option<Vec<(u32, u64)>> {
    let mut nodes: Vec<(u32, u64)> = Vec::new();
    let text = std::str::from_utf8(bytes).ok()?;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !matches!(words.next(), Some("anon" | "file")) {
            continue;
        }
        for word in words {
            let (node, amount) = word.strip_prefix('N')?.split_once('=')?;
            let (node, amount): (u32, u64) = (node.parse().ok()?, amount.parse().ok()?);
            match nodes.iter_mut().find(|(one, _)| *one == node) {
                Some((_, sum)) => *sum = sum.saturating_add(amount),
                None => nodes.push((node, amount)),
            }
        }
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::parse_numa_stat;

    #[test]
    fn anonymous_memory_and_page_cache_add_up_by_node() {
        let text = b"anon N0=4096 N1=8192\nfile N0=1 N1=2\nshmem N0=1 N1=2\nkernel_stack N0=9\n";
        assert_eq!(parse_numa_stat(text), Some(vec![(0, 4097), (1, 8194)]));
        assert_eq!(parse_numa_stat(b"anon N0\n"), None);
        assert_eq!(parse_numa_stat(b""), Some(vec![]));
    }
}

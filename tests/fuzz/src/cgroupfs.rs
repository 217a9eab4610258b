//! The files of a cgroup.

use virtlens_host::{
    parse_cpu_max, parse_cpu_stat, parse_numa_stat, parse_quota_us, parse_threads,
};

/// `data` is the content of any of these files.
pub fn cgroupfs(data: &[u8]) {
    let stat = parse_cpu_stat(data);
    assert!(stat.usage_ns.is_none_or(|ns| ns % 1000 == 0));
    if let Some((quota_ns, period_ns)) = parse_cpu_max(data) {
        let quota = quota_ns.map_or_else(|| "max".to_owned(), |ns| (ns / 1000).to_string());
        let again = format!("{quota} {}", period_ns / 1000);
        assert_eq!(parse_cpu_max(again.as_bytes()), Some((quota_ns, period_ns)));
    }
    if let Some(quota_ns) = parse_quota_us(data).flatten() {
        assert_eq!(quota_ns % 1000, 0);
    }
    if let Some(nodes) = parse_numa_stat(data) {
        let mut numbers: Vec<u32> = nodes.iter().map(|(node, _)| *node).collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b), "each node once");
    }
    let threads = parse_threads(data);
    assert!(!threads.tids.contains(&0));
    let lines = data.split(|byte| *byte == b'\n').count() as u64;
    let kept = threads.tids.len() as u64;
    assert!(kept + threads.losses.denied + threads.losses.unparsed <= lines);
}

//! Files of /proc that do not belong to a thread.

use virtlens_host::{
    CgroupVersion, KvmLink, parse_boot_time, parse_children, parse_clock_ticks, parse_kvm_link,
    parse_meminfo, parse_mountinfo, parse_nohz_full, parse_pcpus, parse_pressure,
    parse_process_cgroup,
};

/// `data` is the content of any of these files.
pub fn proc_files(data: &[u8]) {
    for mount in parse_mountinfo(data) {
        assert!(!mount.unified || mount.controllers.is_empty());
        assert!(mount.controllers.iter().all(|name| !name.is_empty()));
        assert!(mount.levels_above() <= mount.root.len());
    }
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        if let Some(path) = parse_process_cgroup(data, version) {
            assert!(path.starts_with('/') && !path.contains('\n'), "{path:?}");
        }
    }
    if let Some(KvmLink::Vcpu(id)) = parse_kvm_link(data) {
        let again = format!("anon_inode:kvm-vcpu:{id}");
        assert_eq!(parse_kvm_link(again.as_bytes()), Some(KvmLink::Vcpu(id)));
    }
    if let Some(ticks) = parse_clock_ticks(data) {
        assert!((1..=1_000_000).contains(&ticks));
    }
    let _ = parse_boot_time(data);
    for (_, times) in parse_pcpus(data).unwrap_or_default() {
        assert!(times.all >= times.hard.max(times.soft).max(times.steal));
    }
    assert!(parse_children(data).len() <= data.len() / 2);
    let _ = parse_nohz_full(data);
    if let Some(memory) = parse_meminfo(data) {
        assert_eq!(memory.total_bytes % 1024, 0);
    }
    if let Some(percent) = parse_pressure(data) {
        assert!((0.0..=100.0).contains(&percent));
    }
}

//! Lists of CPUs and the host topology from sysfs.

use virtlens_model::vocab::CpuSet;
use virtlens_model::vocab::cpuset::MAX_CPU;
use virtlens_model::vocab::topology::host::{CpuFact, HostTopology};

/// `data` is one list per line: the online CPUs, then the lists of CPUs that share a
/// core, a cache, a die, a node with CPU 0, 1, 2 …
pub fn cpulist(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let lists: Vec<CpuSet> = text.split('\n').filter_map(checked).collect();
    let Some((online, lists)) = lists.split_first() else {
        return;
    };
    let facts: Vec<CpuFact> = (0u32..)
        .zip(lists.chunks(3))
        .map(|(cpu, lists)| CpuFact {
            cpu,
            package: Some(cpu / 4),
            core_cpus: lists.first().cloned(),
            llc_cpus: lists.get(1).cloned(),
            die_cpus: lists.get(2).cloned(),
            node: lists.get(1).and_then(|cpus| cpus.iter().next()),
        })
        .collect();
    let host = HostTopology::new(&facts, online);
    assert_eq!(host.online(), online);
    for cpu in online.iter().take(64) {
        let place = host.place(cpu).expect("it is online");
        let siblings = host.siblings(cpu);
        assert_eq!(siblings.is_empty(), place.core.is_none());
        assert!(siblings.is_empty() || siblings.contains(&cpu));
        assert!(host.distance(cpu, cpu).is_some() || place.core.is_none());
        assert_eq!(host.distance(0, cpu), host.distance(cpu, 0));
    }
}

/// Parses a list, and checks that it prints and parses to the same list.
fn checked(text: &str) -> Option<CpuSet> {
    let set: CpuSet = text.parse().ok()?;
    assert_eq!(set.to_string().parse().as_ref(), Ok(&set), "{text:?}");
    assert!(set.iter().all(|cpu| cpu <= MAX_CPU && set.contains(cpu)));
    assert_eq!(set.iter().count(), set.len());
    assert_eq!(set.iter().collect::<CpuSet>(), set);
    assert_eq!(set.is_empty(), set.iter().next().is_none());
    assert!(set.is_subset(&set) && set.intersection(&set) == set);
    Some(set)
}

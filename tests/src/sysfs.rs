//! Topology of the host according to sysfs, and the comparison with the agent's.

use std::collections::BTreeSet;
use std::fs;

use virtlens_model::vocab::topology::host::HostTopology;

const SYSFS: &str = "/sys/devices/system";

/// Reads a kernel's list such as `0-3,8`.
pub fn list(text: &str) -> BTreeSet<u32> {
    let number = |text: &str| text.parse::<u32>().expect("CPU lists have numbers");
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    parts.flat_map(range).collect()
}

/// Reads a file below `/sys/devices/system`.
pub fn read(path: &str) -> String {
    let path = format!("{SYSFS}/{path}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The CPUs listed in a file of a CPU's directory.
pub fn listed(cpu: u32, file: &str) -> BTreeSet<u32> {
    list(&read(&format!("cpu/cpu{cpu}/{file}")))
}

/// Compares the agent's host topology with sysfs, CPU by CPU.
#[track_caller]
pub fn assert_is_sysfs(host: &HostTopology) {
    let online = list(&read("cpu/online"));
    let reported: BTreeSet<u32> = host.online().iter().collect();
    assert_eq!(reported, online, "online CPUs");
    let nodes = list(&read("node/has_cpu"));
    let node_cpus = |node: u32| list(&read(&format!("node/node{node}/cpulist")));
    let reported: BTreeSet<u32> = host.nodes().map(|(node, _)| node).collect();
    assert_eq!(reported, nodes, "nodes with CPUs");
    for cpu in &online {
        let place = host.place(*cpu).expect("an online CPU has a place");
        let siblings = listed(*cpu, "topology/thread_siblings_list");
        let reported: BTreeSet<u32> = host.siblings(*cpu).iter().copied().collect();
        assert_eq!(reported, siblings, "siblings of CPU {cpu}");
        assert_eq!(place.core, siblings.first().copied(), "core of CPU {cpu}");
        let rank = siblings.iter().position(|other| other == cpu);
        assert_eq!(place.thread.map(|rank| rank as usize), rank);

        let llc = place.llc.and_then(|llc| host.llc_cpus(llc));
        let reported: BTreeSet<u32> = llc.expect("it has a cache").iter().collect();
        // The kernel keeps offline CPUs in this file.
        let sharing = listed(*cpu, "cache/index3/shared_cpu_list");
        let sharing: BTreeSet<u32> = sharing.intersection(&online).copied().collect();
        assert_eq!(reported, sharing, "last-level cache of CPU {cpu}");

        let package = read(&format!("cpu/cpu{cpu}/topology/physical_package_id"));
        assert_eq!(place.package, package.trim().parse().ok());
        let node = nodes.iter().find(|node| node_cpus(**node).contains(cpu));
        assert_eq!(place.node, node.copied(), "node of CPU {cpu}");
    }
}

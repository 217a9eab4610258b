//! CPU topology of trees like /sys/devices/system. The last test needs /sys and /proc of
//! the local host, no privileges.

use std::collections::BTreeMap;
use std::fs;

use virtlens_host::{HostRoot, Losses, TopologyFiles, topology};
use virtlens_model::vocab::topology::host::{Distance, HostTopology};

use crate::tree::Tree;

const SYSTEM: &str = "sys/devices/system";

fn cpu(tree: &Tree, cpu: u32, siblings: &str, llc: &str, package: &str) {
    let dir = format!("{SYSTEM}/cpu/cpu{cpu}");
    let write = |file: &str, text: &str| tree.write(&format!("{dir}/{file}"), format!("{text}\n"));
    write("topology/core_cpus_list", siblings);
    write("topology/die_cpus_list", llc);
    write("topology/physical_package_id", package);
    write("cache/index3/shared_cpu_list", llc);
}

fn node(tree: &Tree, node: u32, cpus: &str) {
    tree.write(
        &format!("{SYSTEM}/node/node{node}/cpulist"),
        format!("{cpus}\n"),
    );
}

/// Two packages of two cores of two threads, siblings 4 apart, and a third NUMA node that
/// has only memory.
fn two_packages() -> Tree {
    let tree = Tree::v2();
    tree.write(&format!("{SYSTEM}/cpu/online"), "0-7\n");
    tree.write(&format!("{SYSTEM}/cpu/smt/active"), "1\n");
    tree.write(&format!("{SYSTEM}/node/online"), "0-2\n");
    for (first, llc, package) in [(0, "0-1,4-5", "0"), (2, "2-3,6-7", "1")] {
        for core in [first, first + 1] {
            let siblings = format!("{core},{}", core + 4);
            cpu(&tree, core, &siblings, llc, package);
            cpu(&tree, core + 4, &siblings, llc, package);
        }
    }
    node(&tree, 0, "0-1,4-5");
    node(&tree, 1, "2-3,6-7");
    node(&tree, 2, "");
    tree
}

fn read(tree: &Tree) -> (HostTopology, Losses) {
    let mut losses = Losses::default();
    let host = topology(&tree.root(), &mut losses).expect("a CPU list");
    (host, losses)
}

#[test]
fn host_topology_is_read_completely() {
    let (host, losses) = read(&two_packages());

    assert_eq!(losses, Losses::default());
    assert_eq!(host.online().to_string(), "0-7");
    assert_eq!(host.siblings(7), [3, 7]);
    let place = host.place(7).expect("it is online");
    assert_eq!((place.package, place.node), (Some(1), Some(1)));
    assert_eq!((place.die, place.llc), (Some(2), Some(2)));
    assert_eq!((place.core, place.thread), (Some(3), Some(1)));
    assert_eq!(host.distance(3, 7), Some(Distance::Smt));
    assert_eq!(host.distance(2, 7), Some(Distance::Core));
    assert_eq!(host.distance(1, 7), Some(Distance::Numa));
    let nodes: Vec<u32> = host.nodes().map(|(node, _)| node).collect();
    assert_eq!(nodes, [0, 1], "a node without CPUs is none for CPUs");
}

#[test]
fn missing_topology_file_is_unknown_and_not_counted() {
    let tree = two_packages();
    for cpu in 0..8 {
        tree.remove(&format!("{SYSTEM}/cpu/cpu{cpu}/cache"));
    }
    tree.remove(&format!("{SYSTEM}/node"));
    tree.remove(&format!("{SYSTEM}/cpu/cpu7"));
    tree.write(
        &format!("{SYSTEM}/cpu/cpu0/topology/physical_package_id"),
        "-1\n",
    );

    let (host, losses) = read(&tree);

    assert_eq!(losses, Losses::default());
    let place = host.place(0).expect("it is online");
    assert_eq!((place.package, place.llc, place.node), (None, None, None));
    assert_eq!(place.core, Some(0));
    let place = host.place(7).expect("it is online");
    assert_eq!((place.core, place.thread), (None, None));
    assert!(!host.knows_cores());
    assert_eq!(host.distance(0, 4), Some(Distance::Smt));
    assert_eq!(host.distance(0, 1), None);
}

#[test]
fn invalid_topology_file_is_unknown_and_counted() {
    let tree = two_packages();
    let dir = format!("{SYSTEM}/cpu/cpu1");
    tree.write(&format!("{dir}/topology/core_cpus_list"), "one\n");
    tree.write(&format!("{dir}/topology/physical_package_id"), "\n");

    let (host, losses) = read(&tree);

    assert_eq!(losses.unparsed, 2);
    let place = host.place(1).expect("it is online");
    assert_eq!((place.core, place.package), (None, None));
    assert_eq!(place.node, Some(0));
}

#[test]
fn missing_cpu_list_is_an_error() {
    let tree = two_packages();
    tree.remove(&format!("{SYSTEM}/cpu/online"));
    let mut losses = Losses::default();
    assert!(topology(&tree.root(), &mut losses).is_err());
}

#[test]
fn topology_stamp_changes_only_with_cpus() {
    let tree = two_packages();
    let mut files = TopologyFiles::default();
    let before = files.stamp(&tree.root());
    cpu(&tree, 1, "1,5", "0-1,4-5", "0");
    assert_eq!(files.stamp(&tree.root()), before);

    for (file, text) in [
        ("cpu/online", "0-3\n"),
        ("cpu/smt/active", "0\n"),
        ("node/online", "0\n"),
    ] {
        let tree = two_packages();
        let mut files = TopologyFiles::default();
        assert_eq!(files.stamp(&tree.root()), before, "{file}");
        tree.write(&format!("{SYSTEM}/{file}"), text);
        let changed = files.stamp(&tree.root());
        assert_ne!(changed, before, "{file}");
        // A kernel may not have the file.
        tree.remove(&format!("{SYSTEM}/{file}"));
        let mut files = TopologyFiles::default();
        let absent = files.stamp(&tree.root());
        assert_ne!(absent, before, "no {file}");
        tree.write(&format!("{SYSTEM}/{file}"), text);
        assert_eq!(files.stamp(&tree.root()), changed, "created {file}");
    }
}

#[test]
fn smt_off_leaves_one_thread_per_core() {
    let tree = two_packages();
    tree.write(&format!("{SYSTEM}/cpu/online"), "0-3\n");
    for core in 0..4 {
        tree.remove(&format!("{SYSTEM}/cpu/cpu{}/topology", core + 4));
        let llc = if core < 2 { "0-1" } else { "2-3" };
        cpu(&tree, core, &core.to_string(), llc, "0");
    }
    let (host, _) = read(&tree);
    assert_eq!(host.threads_per_core(), Some(1));
    assert_eq!(host.place(4), None);
    assert_eq!(host.distance(0, 4), None);
}

/// The local host's cores according to /proc/cpuinfo, by package and core id. The kernel
/// takes them from the same CPUID by another code path.
fn cores_of_cpuinfo() -> BTreeMap<(u32, u32), Vec<u32>> {
    let text = fs::read_to_string("/proc/cpuinfo").expect("a procfs");
    let mut cores: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for cpu in text.split("\n\n").filter(|cpu| !cpu.trim().is_empty()) {
        let number = |name: &str| -> u32 {
            let mut fields = cpu.lines().filter_map(|line| line.split_once(':'));
            let field = fields.find(|(field, _)| field.trim() == name);
            field.expect(name).1.trim().parse().expect(name)
        };
        let core = (number("physical id"), number("core id"));
        cores.entry(core).or_default().push(number("processor"));
    }
    cores
}

#[test]
fn this_host_has_the_cores_of_its_cpuinfo() {
    let mut losses = Losses::default();
    let host = topology(&HostRoot::default(), &mut losses).expect("a sysfs");
    assert_eq!(losses, Losses::default());
    let mut cores: Vec<&[u32]> = host.cores().map(|(_, cpus)| cpus).collect();
    let reported = cores_of_cpuinfo();
    let mut expected: Vec<&[u32]> = reported.values().map(Vec::as_slice).collect();
    cores.sort_unstable();
    expected.sort_unstable();
    assert_eq!(cores, expected);
    assert!(host.knows_cores());
    let mut files = TopologyFiles::default();
    let stamp = files.stamp(&HostRoot::default());
    assert_eq!(files.stamp(&HostRoot::default()), stamp);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("a sysfs");
    assert!(format!("{stamp:?}").contains(&format!("{:?}", online.as_bytes())));
}

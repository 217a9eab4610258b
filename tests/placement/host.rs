//! The machine of this suite, and its topology according to the agent.

use std::collections::BTreeSet;

use virtlens_tests::seats;
use virtlens_tests::sysfs::{assert_is_sysfs, list, listed, read};

/// Asserts that the machine is as `kernels.toml` defines it: the other tests name its
/// CPUs by number.
#[test]
fn machine_has_configured_topology() {
    assert_eq!(list(&read("cpu/online")), (0..12).collect());
    for cpu in 0..12 {
        let core = cpu / 2 * 2;
        assert_eq!(
            listed(cpu, "topology/thread_siblings_list"),
            BTreeSet::from([core, core + 1])
        );
        let llc = cpu / 4 * 4;
        assert_eq!(
            listed(cpu, "cache/index3/shared_cpu_list"),
            (llc..llc + 4).collect()
        );
    }
    assert_eq!(list(&read("node/node0/cpulist")), (0..8).collect());
    assert_eq!(list(&read("node/node1/cpulist")), (8..12).collect());
}

#[test]
fn host_topology_equals_sysfs_files() {
    let mut agent = seats::agent();
    assert_is_sysfs(&agent.collect().host);
}

use super::{CpuFact, Distance, HostPlace, HostTopology};
use crate::vocab::cpuset::CpuSet;
use crate::vocab::topology::synthetic::{Machine, Siblings, machines};

fn set(text: &str) -> CpuSet {
    text.parse().expect(text)
}

#[test]
fn distances_equal_those_of_generated_host() {
    for machine in machines() {
        let host = machine.host();
        let (llc, die) = (machine.cores, machine.cores * machine.llcs);
        for from in 0..machine.cpus() {
            for to in (0..machine.cpus()).step_by(7) {
                let (a, b) = (machine.core(from), machine.core(to));
                let expected = if a == b {
                    Distance::Smt
                } else if a / llc == b / llc {
                    Distance::Core
                } else if a / die == b / die {
                    Distance::Llc
                } else {
                    Distance::Numa
                };
                assert_eq!(
                    host.distance(from, to),
                    Some(expected),
                    "{machine:?} {from} {to}"
                );
            }
        }
        assert_eq!(host.threads_per_core(), Some(machine.threads as usize));
        assert_eq!(host.cores().count(), machine.cores() as usize);
        assert_eq!(host.distance(0, machine.cpus()), None);
    }
}

#[test]
fn place_numbers_are_unique_on_host() {
    let machine = Machine {
        packages: 2,
        dies: 2,
        llcs: 2,
        cores: 2,
        threads: 2,
        siblings: Siblings::Apart,
    };
    let host = machine.host();
    let place = HostPlace {
        package: Some(1),
        die: Some(12),
        node: Some(3),
        llc: Some(14),
        core: Some(15),
        thread: Some(1),
    };
    assert_eq!(host.place(31), Some(&place));
    assert_eq!(host.siblings(31), [15, 31]);
    assert_eq!(host.llc_cpus(14), Some(&set("14-15,30-31")));
    assert_eq!(host.node_cpus(3), Some(&set("12-15,28-31")));
    let nodes: Vec<u32> = host.nodes().map(|(node, _)| node).collect();
    assert_eq!(nodes, [0, 1, 2, 3]);
}

#[test]
fn offline_cpus_are_gaps_and_smt_off_is_one_thread_per_core() {
    let machine = Machine {
        packages: 1,
        dies: 1,
        llcs: 1,
        cores: 4,
        threads: 2,
        siblings: Siblings::Adjacent,
    };
    let online = set("0-1,3,6-7");
    let host = HostTopology::new(&machine.facts(&online), &online);
    assert_eq!(host.place(2), None);
    assert_eq!(host.siblings(3), [3], "its sibling is offline");
    assert_eq!(host.place(3).and_then(|place| place.core), Some(3));
    assert_eq!(host.place(3).and_then(|place| place.thread), Some(0));
    assert_eq!(host.distance(2, 3), None);
    assert_eq!(host.distance(3, 7), Some(Distance::Core));

    let online = set("0,2,4,6");
    let off = HostTopology::new(&machine.facts(&online), &online);
    assert_eq!(off.threads_per_core(), Some(1));
    assert!(off.knows_cores());

    // Facts read before the CPUs went offline may still name them.
    let all = set("0-7");
    let stale = HostTopology::new(&machine.facts(&all), &online);
    assert_eq!(stale, off);
}

#[test]
fn eight_thousand_cpus_have_places() {
    let machine = Machine {
        packages: 8,
        dies: 8,
        llcs: 4,
        cores: 16,
        threads: 2,
        siblings: Siblings::Apart,
    };
    // Building all CPUs would take a minute; the last CPU of each core is enough.
    let online: CpuSet = (0..machine.cpus()).filter(|cpu| cpu % 61 == 0).collect();
    let host = HostTopology::new(&machine.facts(&online), &online);
    let last = online.iter().last().expect("CPUs");
    assert!(last > 8000);
    assert_eq!(
        host.place(last).and_then(|place| place.node),
        Some(machine.core(last) / 64)
    );
}

#[test]
fn unreported_host_topology_is_unknown() {
    let online = set("0-3");
    let host = HostTopology::new(&[], &online);
    assert_eq!(host.place(3), Some(&HostPlace::default()));
    assert_eq!(host.threads_per_core(), None);
    assert!(!host.knows_cores());
    assert_eq!(host.distance(0, 0), None);

    // A VM as a host: cores, but no level 3 cache and no NUMA.
    let fact = |cpu| CpuFact {
        cpu,
        core_cpus: Some(CpuSet::from_iter([cpu])),
        ..CpuFact::default()
    };
    let bare: Vec<CpuFact> = (0..4).map(fact).collect();
    let host = HostTopology::new(&bare, &online);
    assert_eq!(host.distance(1, 1), Some(Distance::Smt));
    assert_eq!(host.distance(0, 1), None);

    // Nodes add information, though not about caches.
    let mut nodes = bare;
    nodes[0].node = Some(0);
    nodes[1].node = Some(0);
    nodes[2].node = Some(5);
    let host = HostTopology::new(&nodes, &online);
    assert_eq!(host.distance(0, 2), Some(Distance::Numa));
    assert_eq!(host.distance(0, 1), None);
    assert_eq!(host.distance(0, 3), None);
}

#[test]
fn cache_spanning_nodes_is_split_by_node() {
    let online = set("0-3");
    let fact = |cpu| CpuFact {
        cpu,
        core_cpus: Some(CpuSet::from_iter([cpu])),
        llc_cpus: Some(online.clone()),
        node: Some(cpu / 2),
        ..CpuFact::default()
    };
    let facts: Vec<CpuFact> = (0..4).map(fact).collect();
    let host = HostTopology::new(&facts, &online);
    assert_eq!(host.distance(0, 1), Some(Distance::Core));
    assert_eq!(host.distance(1, 2), Some(Distance::Numa));
    assert_eq!(host.llcs().count(), 2);
}

#[test]
fn sibling_set_without_own_cpu_is_ignored() {
    let fact = CpuFact {
        cpu: 1,
        core_cpus: Some(set("0")),
        ..CpuFact::default()
    };
    let host = HostTopology::new(&[fact], &set("0-1"));
    assert_eq!(host.place(1).and_then(|place| place.core), None);
}

#[test]
fn topology_round_trips_as_list_of_cpus() {
    for machine in machines() {
        let host = machine.host();
        let json = serde_json::to_string(&host).expect("it can be printed");
        let read: HostTopology = serde_json::from_str(&json).expect("it can be read");
        assert_eq!(read, host, "{machine:?}");
    }
    let host = HostTopology::new(&[], &set("1"));
    let json = serde_json::json!({"cpus": [
        {"cpu": 1, "package": null, "die": null, "node": null, "llc": null, "core": null,
         "thread": null},
    ]});
    assert_eq!(
        serde_json::to_value(&host).expect("it can be printed"),
        json
    );
    let far = serde_json::json!({"cpus": [{"cpu": 8192}]});
    assert!(serde_json::from_value::<HostTopology>(far).is_err());
    let later = serde_json::json!({"cpus": [{"cpu": 1, "cluster": 0}], "caches": []});
    assert_eq!(
        serde_json::from_value::<HostTopology>(later).ok(),
        Some(host)
    );
}

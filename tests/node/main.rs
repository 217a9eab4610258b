//! The chart on two real nodes: `make test-node`. kubelet, containerd and runc run in VMs of
//! tests/vm, with pods that run VMs. The API server, controllers, helm and kubectl run on
//! the host, in a private network, and so does the plugin of kubectl.

mod cluster;
mod machine;
mod network;
mod picture;
mod plugin;

use cluster::Cluster;
use virtlens_tests::{eventually, need, scraped};

/// One cluster for all checks: machines boot and start pods for minutes.
#[test]
fn agents_of_chart_observe_vms_of_real_nodes() {
    let needs = [
        need::root(),
        need::api_server(),
        need::helm(),
        need::node(),
        need::containerd(),
    ];
    if !need::all("agents_of_chart_observe_vms_of_real_nodes", needs) {
        return;
    }
    let cluster = Cluster::start();
    for (name, check) in CHECKS {
        println!("{name}");
        check(&cluster);
    }
}

/// A part of the test.
type Check = fn(&Cluster);

/// The checks, in this order. A program that queries the cluster from outside runs with
/// [`Cluster::run`].
const CHECKS: [(&str, Check); 10] = [
    ("vms_have_names_and_limits_of_their_pods", names_and_limits),
    ("doctor_finds_only_the_vm_at_its_limit", doctor),
    ("plugin_shows_pods_from_outside", plugin::shows_pods),
    ("plugin_shows_all_nodes", plugin::shows_all_nodes),
    ("plugin_names_stopped_agent", plugin::names_stopped_agent),
    ("plugin_shows_incident_of_capped_vm", plugin::shows_incident),
    // A new agent has a new recording, so this is before the rollouts.
    ("session_is_recorded_if_wanted", picture::record),
    ("no_counter_falls_over_a_rollout", rollout),
    (
        "plugin_names_node_without_agent",
        plugin::names_node_without_agent,
    ),
    ("plugin_takes_trace_with_permission", plugin::takes_trace),
];

fn names_and_limits(cluster: &Cluster) {
    for name in ["capped", "idle"] {
        let labels = format!("{{namespace=\"tenant\",pod=\"{name}\",vm=\"{name}-vm\",");
        let limit = format!("virtlens_cfs_quota_cores{labels}scope=\"pod\"}} 0.2");
        let info = format!("virtlens_vm_info{labels}");
        let node = format!("node=\"{}\"", machine::NAME);
        // The agent learns names by a watch.
        eventually(&format!("{info} and {limit}"), || {
            let metrics = cluster.scrape();
            let is_info = |line: &str| line.starts_with(&info) && line.contains(&node);
            let found = metrics.lines().any(is_info) && metrics.lines().any(|line| line == limit);
            found.then_some(())
        });
    }
}

fn doctor(cluster: &Cluster) {
    let output = cluster.exec("doctor --for 5s");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("tenant/capped (") && text.contains("quota_capped"),
        "{output:?}"
    );
    assert!(!text.contains("tenant/idle ("), "{text}");
}

fn rollout(cluster: &Cluster) {
    let (agent, before) = (cluster.agent(), cluster.counters());
    cluster.restart_agent();
    assert_ne!(cluster.agent(), agent);
    let after = cluster.counters();
    let lost: Vec<_> = before
        .keys()
        .filter(|series| !after.contains_key(*series))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    let used_ns = |counters| scraped::cpu_ns(counters, "capped-vm");
    assert!(used_ns(&after) > used_ns(&before), "the VM runs on");
    scraped::not_fallen(&mut before.clone(), after);
}

//! The plugin of kubectl, from outside of the node.

use std::fs;
use std::process::Output;

use serde_json::Value;
use virtlens_tests::eventually;

use crate::cluster::Cluster;
use crate::machine;

/// Numbers of signals on Linux.
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the plugin writes UTF-8")
}

/// Runs the plugin as users do.
fn plugin(cluster: &Cluster, line: &str) -> Output {
    let output = cluster.run("kubectl", &format!("virtlens {line}"));
    println!("kubectl virtlens {line}: {:?}", output.status.code());
    output
}

/// Output of the plugin; panics with its error.
fn shown(cluster: &Cluster, line: &str) -> String {
    let output = plugin(cluster, line);
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", machine::consoles());
    text(&output.stdout).to_owned()
}

/// The names of the VMs in a snapshot.
fn vms(snapshot: &str) -> Vec<String> {
    let snapshot: Value = serde_json::from_str(snapshot).expect("JSON");
    assert_eq!(snapshot["node"]["name"], machine::NAME);
    let vms = snapshot["vms"].as_array().expect("a list").iter();
    vms.map(|vm| vm["vm"].as_str().expect("a name").to_owned())
        .collect()
}

pub(crate) fn shows_pods(cluster: &Cluster) {
    let capped = shown(cluster, "snapshot --namespace tenant capped --output json");
    assert_eq!(vms(&capped), ["capped-vm"]);
    let node = machine::NAME;
    let all = shown(cluster, &format!("snapshot --node {node} --output json"));
    let mut names = vms(&all);
    names.sort();
    assert_eq!(names, ["capped-vm", "idle-vm"]);
    for line in ["top --namespace tenant", "top --all-namespaces"] {
        let table = shown(cluster, line);
        for part in ["tenant/capped", "tenant/idle"] {
            assert!(table.contains(part), "{line}: {table}");
        }
    }
    let drawn = shown(cluster, "topology --namespace tenant capped");
    assert!(drawn.contains("tenant/capped"), "{drawn}");
    assert!(!drawn.contains("tenant/idle"), "{drawn}");

    let found = plugin(cluster, "doctor --namespace tenant capped --for 5s");
    // It has findings.
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(text(&found.stdout).contains("quota_capped"), "{found:?}");
    // The API server's proxy, instead of a forwarded port.
    let capped = shown(
        cluster,
        "snapshot --proxy --namespace tenant capped -o json",
    );
    assert_eq!(vms(&capped), ["capped-vm"]);
}

pub(crate) fn shows_all_nodes(cluster: &Cluster) {
    let all = shown(cluster, "snapshot --all-namespaces --output json");
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let items = all["items"].as_array().expect("a list").iter();
    let mut names: Vec<_> = items.map(|item| &item["node"]["name"]).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, machine::NODES);
    let table = shown(cluster, "top --all-namespaces");
    assert!(table.starts_with("2 nodes: "), "{table}");
    for (pod, node) in [
        ("tenant/capped", machine::NAME),
        ("tenant/second", machine::SECOND),
    ] {
        let mut lines = table.lines();
        let is_there = lines.any(|line| line.contains(pod) && line.contains(node));
        assert!(is_there, "{pod}: {table}");
    }
}

/// For each command the agent is stopped for less time than until the kubelet restarts it.
pub(crate) fn names_stopped_agent(cluster: &Cluster) {
    for line in ["snapshot --all-namespaces", "top --all-namespaces"] {
        cluster.signal_agent(SIGSTOP);
        let output = plugin(cluster, line);
        cluster.signal_agent(SIGCONT);
        names_other_node(&output, machine::NAME, "tenant/second", "tenant/capped");
        let error = text(&output.stderr);
        assert!(error.contains("has not answered in 5 s"), "{error}");
    }
}

/// The output of a command that shows the pod of one node and names the other.
#[track_caller]
fn names_other_node(output: &Output, missing: &str, pod: &str, absent: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (table, error) = (text(&output.stdout), text(&output.stderr));
    assert!(error.contains(&format!("virtlens: {missing}: ")), "{error}");
    assert!(table.contains(pod) && !table.contains(absent), "{table}");
}

pub(crate) fn shows_incident(cluster: &Cluster) {
    let list = "incidents --namespace tenant --output json";
    let listed = eventually("the incident of the VM at its limit", || {
        let listed: Value = serde_json::from_str(&shown(cluster, list)).expect("JSON");
        let has_any = !listed["incidents"].as_array().expect("a list").is_empty();
        has_any.then_some(listed)
    });
    let incident = &listed["incidents"][0];
    assert_eq!(incident["vm"]["vm"], "capped-vm", "{listed:#}");
    assert_eq!(incident["node"], machine::NAME);
    let id = incident["id"].as_str().expect("an id");
    let report = shown(cluster, &format!("incidents show {id} --namespace tenant"));
    assert!(report.contains("quota_capped"), "{report}");

    // The chart has no authorization by default, so nobody may trace.
    let refused = plugin(cluster, "trace --namespace tenant capped --for 1s");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let error = text(&refused.stderr);
    assert!(error.contains("--web-auth kubernetes"), "{error}");
}

pub(crate) fn names_node_without_agent(cluster: &Cluster) {
    cluster.remove_second_agent();
    for line in ["snapshot --namespace tenant", "top --namespace tenant"] {
        let output = plugin(cluster, line);
        names_other_node(&output, machine::SECOND, "tenant/capped", "tenant/second");
        let error = text(&output.stderr);
        assert!(error.contains("no running agent"), "{error}");
    }
    cluster.remove_agents();
    for (line, part) in [
        ("snapshot --namespace tenant capped", machine::NAME),
        (
            "top --all-namespaces",
            "no running agent in namespace virtlens",
        ),
    ] {
        let output = plugin(cluster, line);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{error}");
    }
    cluster.return_agents();
    let capped = shown(cluster, "snapshot --namespace tenant capped --output json");
    assert_eq!(vms(&capped), ["capped-vm"]);
}

/// The agents review tokens, and the one of this service account may trace.
pub(crate) fn takes_trace(cluster: &Cluster) {
    cluster.authorize();
    let refused = plugin(cluster, "trace --namespace tenant capped --for 1s");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("(401)"), "{refused:?}");
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let file = folder.path().join("capped.pftrace");
    let line = format!(
        "trace --namespace tenant capped --for 1s --service-account tenant/tracer --output {}",
        file.display()
    );
    // An agent that has just started may not know the pod yet, or trace an incident.
    eventually("a trace", || {
        let output = plugin(cluster, &line);
        let error = text(&output.stderr);
        println!("{error}");
        output.status.success().then_some(())
    });
    let length = fs::metadata(&file).expect("the file").len();
    assert!(length > 1000, "{length} bytes");
}

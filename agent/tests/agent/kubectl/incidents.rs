//! `kubectl virtlens incidents` and `trace`.

use std::fs;
use std::net::TcpListener;

use tempfile::TempDir;
use virtlens_record::Incident;

use super::{Cluster, PODS, Server, json, node, place, record, run, stderr, stdout};
use crate::api::incidents::keep;
use crate::api::reviews::Reviews;

/// An agent with an incident of the VM of shop/web-0, with this trace.
fn agent(name: &str, trace: Option<&[u8]>) -> (TempDir, Server, Incident) {
    let folder = tempfile::tempdir().expect("a directory");
    record(folder.path(), &node(name), 1000..1010);
    let incident = keep(folder.path(), &node(name).vms[0], trace);
    let server = Server::with(node(name), None, Some(folder.path()));
    (folder, server, incident)
}

#[test]
fn incidents_of_all_nodes_are_listed_and_one_is_fetched_with_its_trace() {
    let (folder, a, incident) = agent("node-a", Some(b"a trace"));
    let (_of_b, b, _) = agent("node-b", None);
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = closed.local_addr().expect("an address");
    drop(closed);
    let agents = [
        place("node-a", a.address),
        place("node-b", b.address),
        place("node-c", gone),
    ];
    let cluster = Cluster::start(&agents, PODS);
    let output = run(&cluster, &["incidents", "-A"]);
    let (table, errors) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("virtlens: node-c: "), "{errors}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("ID "), "{table}");
    let output = run(&cluster, &["incidents", "web-0", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let listed = json(&output);
    let listed = listed["incidents"].as_array().expect("a list");
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], *incident.id);
    let output = run(&cluster, &["incidents", "-n", "bank"]);
    assert_eq!(stdout(&output), "No incidents.\n");

    // Both nodes have an incident of this id.
    let show = ["incidents", "show", &incident.id];
    let output = run(&cluster, &[&show[..], &["-A"]].concat());
    let errors = stderr(&output);
    assert!(errors.contains("--node: node-a, node-b"), "{errors}");
    let file = folder.path().join("saved");
    let path = file.to_str().expect("text");
    let save = ["--node", "node-a", "--save-trace", path];
    let output = run(&cluster, &[&show[..], &save].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("warning: vcpu_overlap"), "{text}");
    let command = format!(
        "kubectl virtlens incidents show {} --node node-a",
        incident.id
    );
    assert!(text.contains(&command), "{text}");
    assert_eq!(fs::read(&file).expect("it is saved"), b"a trace");
    let output = run(&cluster, &["incidents", "show", "1-1", "--node", "node-a"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = stderr(&output);
    assert!(errors.contains("unknown incident 1-1"), "{errors}");
}

#[test]
fn trace_is_taken_on_the_node_of_the_pod() {
    let reviews = Reviews::start(&[
        ("tracer", &["/metrics", "post /api/v1/trace"]),
        ("reader", &["/metrics"]),
    ]);
    let server = Server::with(node("node-a"), Some(reviews.reviewer()), None);
    let cluster = Cluster::start(&[place("node-a", server.address)], PODS);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("token");
    for (token, expected) in [
        // The last check before a process is started; the host of the test is unknown.
        ("tracer", "the memory of the node is unknown"),
        ("reader", "lacks the verb post on this nonResourceURL"),
    ] {
        fs::write(&file, token).expect("there is room");
        let token_file = file.to_str().expect("text");
        let args = ["trace", "web-0", "--for", "1s", "--token-file", token_file];
        let output = run(&cluster, &args);
        assert_eq!(output.status.code(), Some(1));
        let errors = stderr(&output);
        assert!(errors.contains(expected), "{token}: {errors}");
    }
    for (args, expected) in [
        (
            &["trace", "web-0", "--for", "1h"][..],
            "--for: expected 100ms to 30s",
        ),
        (
            &["trace", "web-0", "--max-size", "61"],
            "--max-size: expected 1 to 60",
        ),
        (&["trace"], "<POD>"),
    ] {
        let output = run(&cluster, args);
        assert_ne!(output.status.code(), Some(0));
        let errors = stderr(&output);
        assert!(errors.contains(expected), "{errors}");
    }
}

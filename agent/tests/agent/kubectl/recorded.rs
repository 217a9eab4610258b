//! Recorded times of several nodes.

use serde_json::Value;

use super::{Cluster, PODS, Server, json, node, place, record, run, stderr, stdout, vms};

#[test]
fn doctor_judges_what_the_agents_of_a_cluster_recorded() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut reading = node("node-a");
    "1970-01-01T00:20:00Z".clone_into(&mut reading.time);
    record(folder.path(), &reading, 1000..1400);
    let a = Server::with(reading, None, Some(folder.path()));
    let b = Server::start(node("node-b"));
    let agents = [place("node-a", a.address), place("node-b", b.address)];
    let cluster = Cluster::start(&agents, PODS);
    let time = [
        "--since",
        "1970-01-01T00:16:40Z",
        "--until",
        "1970-01-01T01:00:00Z",
    ];
    let output = run(&cluster, &[&["doctor", "-A"], &time[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stdout(&output).contains("held: "), "{}", stdout(&output));
    let errors = stderr(&output);
    assert!(
        errors.contains("node-b: ") && errors.contains("--record"),
        "{errors}"
    );
}

#[test]
fn two_recorded_times_of_a_pod_are_compared() {
    let folder = tempfile::tempdir().expect("a directory");
    record(folder.path(), &node("node-a"), 1000..1400);
    let a = Server::with(node("node-a"), None, Some(folder.path()));
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    let time = [
        "--since",
        "1970-01-01T00:20:00Z",
        "--until",
        "1970-01-01T00:21:00Z",
        "--against",
        "1970-01-01T00:17:00Z",
        "-o",
        "json",
    ];
    let output = run(&cluster, &[&["doctor", "web-0"], &time[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let differences = json(&output);
    let vms = differences["vms"].as_array().expect("VMs");
    assert_eq!(vms.len(), 1, "{vms:?}");
    assert_eq!(differences["node"], "node-a");
    let output = run(&cluster, &[&["doctor", "-A"], &time[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("POD"), "{}", stderr(&output));
}

#[test]
fn recorded_readings_of_nodes_are_shown_at_a_time() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for (folder, name) in folders.iter().zip(["node-a", "node-b"]) {
        record(folder.path(), &node(name), 1000..1010);
    }
    let [a, b] = ["node-a", "node-b"].map(|name| {
        let folder = &folders[usize::from(name == "node-b")];
        Server::with(node(name), None, Some(folder.path()))
    });
    let c = Server::start(node("node-c"));
    let agents = [
        place("node-a", a.address),
        place("node-b", b.address),
        place("node-c", c.address),
    ];
    let cluster = Cluster::start(&agents, PODS);
    // 1005 s, and 60 s behind the last reading.
    for (time, clock_s) in [
        ("1970-01-01T00:16:45Z", 1005),
        ("1970-01-01T00:17:49Z", 1009),
    ] {
        let args = ["snapshot", "--at", time, "-o", "json"];
        let output = run(&cluster, &[&args[..], &["-A"]].concat());
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("node-c: ") && errors.contains("--record"),
            "{errors}"
        );
        let all = json(&output);
        let items = all["items"].as_array().expect("a list");
        assert_eq!(items.len(), 2);
        let is_of = |item: &Value| item["clock_ns"] == clock_s;
        assert!(items.iter().all(is_of), "{time}");
        let output = run(&cluster, &[&args[..], &["web-0"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(vms(&json(&output)), ["sandbox-7c41e0"]);
    }
    let at = ["--at", "1970-01-01T00:16:45Z", "--interval", "3s"];
    let output = run(&cluster, &[&["snapshot", "-A"], &at[..]].concat());
    let text = stdout(&output);
    assert!(text.contains("reading of node-b: "), "{text}");
    let output = run(&cluster, &["topology", "web-0", "--at", at[1]]);
    let text = stdout(&output);
    assert!(text.contains("shop/web-0"), "{text}{}", stderr(&output));
    let args = ["snapshot", "web-0", "--at", "1970-01-01T02:00:00Z"];
    let output = run(&cluster, &args);
    let errors = stderr(&output);
    assert!(errors.contains("in the 15 min before"), "{errors}");
}

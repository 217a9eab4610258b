//! `kubectl virtlens` with a minimal API server, and agents of the tests behind it.

mod cluster;
mod incidents;
mod page;
mod recorded;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::process::Output;

use serde_json::Value;
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::fixture;

use self::cluster::{Cluster, Place};
use crate::api::remote::agent_that;
use crate::api::reviews::Reviews;
use crate::api::{Server, record, vms};
use crate::program::virtlens;
use crate::web::{Site, text};

/// The pods of the fixture's VMs, and one on a node without an agent.
const PODS: &[(&str, &str, &str)] = &[
    ("shop", "web-0", "node-a"),
    ("shop", "web-1", "node-b"),
    ("shop", "web-2", "node-z"),
    ("bank", "db-0", "node-b"),
];

fn node(name: &str) -> Snapshot {
    let mut reading = fixture::snapshot();
    "2026-01-31T03:10:00Z".clone_into(&mut reading.time);
    name.clone_into(&mut reading.node.name);
    reading
}

fn place(node: &'static str, address: SocketAddr) -> Place {
    Place {
        node,
        address,
        scheme: "http",
    }
}

/// Runs the plugin.
fn run(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = virtlens();
    command.arg0("kubectl-virtlens").args(args);
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    command.output().expect("the program starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn pod_is_shown_by_the_agent_on_its_node() {
    let (a, b) = (Server::start(node("node-a")), Server::start(node("node-b")));
    let agents = [place("node-a", a.address), place("node-b", b.address)];
    let cluster = Cluster::start(&agents, PODS);
    for args in [
        &["snapshot", "web-0", "-o", "json"][..],
        &[
            "snapshot",
            "pod/web-0",
            "-n",
            "shop",
            "-o",
            "json",
            "--proxy",
        ],
        &["snapshot", "shop/web-0", "-n", "bank", "-o", "json"],
    ] {
        let output = run(&cluster, args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        let shown = json(&output);
        assert_eq!(shown["node"]["name"], "node-a");
        assert_eq!(vms(&shown), ["sandbox-7c41e0"]);
    }
    assert_eq!(b.readings(), 0, "only the pod's node is asked");
    let output = run(&cluster, &["topology", "web-0"]);
    assert!(
        stdout(&output).contains("shop/web-0"),
        "{}",
        stderr(&output)
    );
    let output = run(&cluster, &["doctor", "web-0", "--for", "1s"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stdout(&output).contains("vhost_saturated"));
    let output = run(&cluster, &["top", "web-0", "--interval", "100ms"]);
    assert!(
        stdout(&output).contains("shop/web-0"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn vms_of_several_nodes_are_shown_together_and_missing_nodes_named() {
    let (a, b) = (Server::start(node("node-a")), Server::start(node("node-b")));
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = closed.local_addr().expect("an address");
    drop(closed);
    let old =
        "HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\nConnection: close\r\n\r\nnot found\n";
    let agents = [
        place("node-a", a.address),
        place("node-b", b.address),
        place("node-c", gone),
        place("node-d", agent_that(Some(old))),
        place("node-e", agent_that(None)),
    ];
    let cluster = Cluster::start(&agents, PODS);
    let output = run(&cluster, &["snapshot", "-A"]);
    let (table, errors) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let rows = |node: &str| table.lines().filter(|line| line.contains(node)).count();
    assert!(table.starts_with("2 nodes: "), "{table}");
    let count = node("node-a").vms.len();
    assert_eq!(
        (rows("node-a "), rows("node-b ")),
        (count, count),
        "{table}"
    );
    for expected in [
        "virtlens: node-c: cannot query the agent on node-c: ",
        "virtlens: node-d: the agent on node-d refused the request (404): not found; the agent \
         may be older than its API",
        "virtlens: node-e: the agent on node-e has not answered in 5 s",
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    assert!(
        errors.contains("failed to connect inside the pod"),
        "{errors}"
    );

    // The namespace's pods are on two nodes with an agent, and one without.
    let output = run(&cluster, &["snapshot", "-n", "shop", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = json(&output);
    assert_eq!(shown["kind"], "SnapshotList");
    let items = shown["items"].as_array().expect("a list");
    assert_eq!(items.len(), 2);
    for item in items {
        assert_eq!(
            vms(item),
            ["sandbox-7c41e0"],
            "the others have another namespace"
        );
    }
    assert_eq!(stderr(&output), "virtlens: node-z: no running agent\n");

    let output = run(&cluster, &["doctor", "-n", "shop", "--for", "1s"]);
    let findings = stdout(&output);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(findings.starts_with("2 nodes: "), "{findings}");
    for node in ["node-a", "node-b"] {
        let title = format!("shop/web-0 on {node} (");
        assert!(findings.contains(&title), "{findings}");
    }
    let output = run(
        &cluster,
        &["top", "--node", "node-a", "--interval", "100ms"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn token_reaches_the_agent_on_demand_only() {
    let reviews = Reviews::start(&[("shop-token", &["shop"]), ("own-token", &["/metrics"])]);
    let a = Server::with(node("node-a"), Some(reviews.reviewer()), None);
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("token");
    std::fs::write(&file, "shop-token").expect("written");
    let snapshot = |args: &[&str]| {
        let base = ["snapshot", "--node", "node-a", "-o", "json"];
        run(&cluster, &[&base, args].concat())
    };
    for args in [&[][..], &["--proxy"]] {
        let refused = snapshot(args);
        let errors = stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{args:?}");
        let remedy = ["(401)", "--service-account"];
        assert!(remedy.iter().all(|word| errors.contains(word)), "{errors}");
    }
    for head in cluster.proxied() {
        // The API server gets it, and the agent does not.
        assert!(
            head.to_lowercase()
                .contains("authorization: bearer own-token")
        );
    }
    let own_pods = ["sandbox-7c41e0"];
    for args in [
        ["--token-file", text(&file)],
        ["--service-account", "shop/shop"],
    ] {
        let output = snapshot(&args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(vms(&json(&output)), own_pods);
    }
    let output = snapshot(&["--own-token"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(vms(&json(&output)).len(), node("node-a").vms.len());
}

#[test]
fn agents_with_tls_and_client_certificates_are_asked() {
    let site = Site::new(
        "tls_server_config: {cert_file: web.crt, key_file: web.key, client_ca_file: ca.crt, \
         client_auth_type: RequireAndVerifyClientCert}\n",
    );
    site.certify("web", "virtlens.virtlens.svc");
    site.certify("reader", "reader.example");
    let agent = site.start();
    let place = Place {
        scheme: "https",
        ..place("node-a", agent.address)
    };
    let cluster = Cluster::start(&[place], PODS);
    let path = |name| text(&site.path(name)).to_owned();
    let (ca, crt, key) = (path("ca.crt"), path("reader.crt"), path("reader.key"));
    let identity = ["--client-certificate", &crt, "--client-key", &key];
    let snapshot = |args: &[&str]| run(&cluster, &[&["snapshot", "-A"], args].concat());
    let output = snapshot(&[&identity[..], &["--ca-file", &ca]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = snapshot(&[&identity[..], &["--insecure-skip-tls-verify"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let other = ["--ca-file", &ca, "--server-name", "other.example"];
    for args in [
        &identity[..],
        &["--ca-file", &ca],
        &[&identity[..], &other].concat(),
    ] {
        let output = snapshot(args);
        let errors = stderr(&output).to_lowercase();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        // An agent that closes a connection with unread data can lose its last message.
        let is_reported = ["certificate", "close_notify"]
            .iter()
            .any(|word| errors.contains(word));
        assert!(is_reported, "{args:?}: {errors}");
    }
}

/// The kubelet closes a forwarded port with the connection of the agent.
#[test]
fn answer_that_ends_with_the_connection_is_complete() {
    let reading = serde_json::to_string(&node("node-a")).expect("JSON");
    let answer = format!("HTTP/1.1 200 OK\r\n\r\n{reading}");
    let agents = [
        place("node-a", agent_that(Some(answer.leak()))),
        place("node-b", agent_that(Some(""))),
    ];
    let cluster = Cluster::start(&agents, PODS);
    let output = run(&cluster, &["snapshot", "web-0", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(vms(&json(&output)), ["sandbox-7c41e0"]);
    let output = run(&cluster, &["snapshot", "bank/db-0"]);
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    // Not a timeout.
    assert!(errors.contains("cannot query the agent"), "{errors}");
}

#[test]
fn wrong_names_and_options_are_reported() {
    let a = Server::start(node("node-a"));
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    for (args, code, expected) in [
        (&["snapshot", "web-9"][..], 1, "pods \"web-9\" not found"),
        (
            &["snapshot", "web-2"],
            1,
            "no running agent on node-z in namespace virtlens",
        ),
        (
            &["snapshot", "-n", "none"],
            1,
            "no running pod in namespace none",
        ),
        (
            &["snapshot", "-A", "--agents-namespace", "none"],
            1,
            "no running agent in namespace none",
        ),
        (&["snapshot", "-A", "--context", "none"], 1, "none"),
        (
            &["doctor", "web-0", "--for", "1ms"],
            2,
            "--for: expected 1s or more",
        ),
        (
            &["top", "web-0", "--interval", "1ms"],
            2,
            "--interval: expected 100ms",
        ),
        (
            &["snapshot", "--service-account", "x"],
            2,
            "expected NAMESPACE/NAME",
        ),
        (
            &["snapshot", "--proxy", "--own-token"],
            2,
            "cannot be used with",
        ),
    ] {
        let output = run(&cluster, args);
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(expected), "{args:?}: {errors}");
    }
}

#[test]
fn commands_namespaces_and_pods_are_completed() {
    let a = Server::start(node("node-a"));
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    let complete = |args: &[&str]| {
        let mut command = virtlens();
        command.arg0("kubectl_complete-virtlens");
        let kubeconfig = cluster.kubeconfig();
        let output = command.env("KUBECONFIG", &kubeconfig).args(args).output();
        let output = output.expect("the program starts");
        let lines = stdout(&output).lines().map(|line| {
            let name = line.split('\t').next();
            name.unwrap_or_default().to_owned()
        });
        lines.collect::<Vec<String>>()
    };
    assert_eq!(complete(&["to"]), ["top", "topology", ":4"]);
    assert_eq!(complete(&["top", ""]), ["web-0", "web-1", "web-2", ":4"]);
    assert_eq!(complete(&["top", "-n", "bank", ""]), ["db-0", ":4"]);
    assert_eq!(complete(&["-n", "bank", "doctor", "web"]), [":4"]);
    assert_eq!(complete(&["top", "-n", "b"]), ["bank", ":4"]);
    let flags = complete(&["top", "--as"]);
    assert_eq!(flags, ["--ascii", ":4"]);
    let mut unreachable = virtlens();
    unreachable.arg0("kubectl_complete-virtlens");
    let unreachable = unreachable.env("KUBECONFIG", "/no/config");
    let output = unreachable.args(["top", ""]).output().expect("it starts");
    assert_eq!(stdout(&output), ":4\n");
}

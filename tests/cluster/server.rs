//! Checks of the API server that the suite uses.

use virtlens_tests::{ApiServer, need};

/// Data survives a restart, so a test that loses data has deleted it.
#[test]
fn killed_server_restarts_with_its_data() {
    if !need::all("killed_server_restarts_with_its_data", [need::api_server()]) {
        return;
    }
    let mut server = ApiServer::start();
    server.ask(["create", "namespace", "kept"]);
    let url = server.url();
    server.kill();
    let away = server.kubectl(["get", "namespaces"]).output();
    assert!(!away.expect("kubectl can be started").status.success());
    server.resume();
    assert_eq!(server.url(), url, "on the same port");
    let name = ["get", "namespace", "kept", "-o", "name"];
    assert_eq!(server.ask(name), "namespace/kept\n");
}

/// A recent etcd can stream a list; an old one cannot.
#[test]
fn old_etcd_refuses_streaming_lists() {
    let old = need::old_etcd();
    let needs = [need::api_server(), old.clone().map(drop)];
    if !need::all("old_etcd_refuses_streaming_lists", needs) {
        return;
    }
    let stream = "/api/v1/pods?watch=true&timeoutSeconds=2&sendInitialEvents=true\
                  &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let new = ApiServer::start().ask(["get", "--raw", stream]);
    assert!(new.contains("k8s.io/initial-events-end"), "{new}");
    let server = ApiServer::start_with(&old.expect("it was asked for"));
    // The error comes in the stream, after a status of 200.
    let refusal = server.ask(["get", "--raw", stream]);
    let words = ["\"type\":\"ERROR\"", "RequestWatchProgress is disabled"];
    assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
}

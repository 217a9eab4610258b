//! Pod names from a real API server, with and without failures.

use std::io::Write as _;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtlens_kube::{Cluster, Names, PodsState, Source};
use virtlens_tests::{ApiServer, eventually, need};

use crate::proxy::Proxy;

const NODE: &str = "node-a";

/// The length of an outage during a rolling update of a control plane.
const OUTAGE: Duration = Duration::from_mins(1);

fn ready(test: &str) -> bool {
    need::all(test, [need::api_server()])
}

fn follow(kubeconfig: impl Into<std::path::PathBuf>) -> Names {
    let source = Source::ApiServer {
        cluster: Cluster::Kubeconfig(kubeconfig.into()),
        node: NODE.to_owned(),
    };
    Names::start(source).expect("a thread can be started")
}

/// Applies all of these manifests.
pub(crate) fn create(server: &ApiServer, manifests: &[serde_json::Value]) {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifests});
    let mut kubectl = server.kubectl(["create", "-f", "-"]);
    kubectl.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = kubectl.spawn().expect("kubectl can be started");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin
        .write_all(list.to_string().as_bytes())
        .expect("kubectl reads");
    drop(stdin);
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "kubectl create: {status}");
}

fn pod(name: &str, node: &str) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {
            "io.katacontainers.config.hypervisor.default_vcpus": "2"}},
        "spec": {"nodeName": node, "containers": [{
            "name": "main", "image": "none", "env": [{"name": "SECRET", "value": "seen"}],
            "resources": {"limits": {"cpu": "500m"}}}]},
    })
}

fn uid(server: &ApiServer, name: &str) -> String {
    server.ask(["get", "pod", name, "-o", "jsonpath={.metadata.uid}"])
}

fn delete(server: &ApiServer, name: &str) {
    server.ask([
        "delete",
        "pod",
        name,
        "--grace-period=0",
        "--force",
        "--wait=true",
    ]);
}

fn until(names: &Names, what: &str, is_so: impl Fn(&PodsState) -> bool) -> PodsState {
    eventually(what, || {
        let state = names.read();
        is_so(&state).then_some(state)
    })
}

fn has(state: &PodsState, name: &str) -> bool {
    state.pods.values().any(|pod| &*pod.name == name)
}

#[test]
fn pods_of_other_nodes_are_not_stored() {
    if !ready("pods_of_other_nodes_are_not_stored") {
        return;
    }
    let server = ApiServer::start();
    let elsewhere: Vec<_> = (0..500)
        .map(|n| pod(&format!("far-{n}"), "node-b"))
        .collect();
    create(&server, &elsewhere);
    create(&server, &[pod("near", NODE)]);
    let names = follow(server.kubeconfig());
    names.wait(Duration::from_secs(20));
    let state = names.read();
    assert_eq!(state.failure, "");
    let uid = uid(&server, "near");
    let near = &state.pods[uid.as_str()];
    assert_eq!((&*near.namespace, &*near.name), ("default", "near"));
    assert_eq!(near.spec.default_vcpus, Some(2.0));
    assert_eq!(near.spec.cpu_limit_millis, Some(500));
    assert_eq!(state.pods.len(), 1, "{:?}", state.pods);
    // A pod that is created later on another node is not listed either.
    create(
        &server,
        &[pod("far-later", "node-b"), pod("near-later", NODE)],
    );
    let state = until(&names, "the new pod is known", |state| {
        has(state, "near-later")
    });
    assert_eq!(state.pods.len(), 2, "{:?}", state.pods);
}

/// A stateful set recreates its pods like this.
#[test]
fn recreated_pod_with_same_name_is_another_pod() {
    if !ready("recreated_pod_with_same_name_is_another_pod") {
        return;
    }
    let server = ApiServer::start();
    create(&server, &[pod("db-0", NODE)]);
    let before = uid(&server, "db-0");
    let names = follow(server.kubeconfig());
    until(&names, "the pod is known", |state| {
        state.pods.contains_key(before.as_str())
    });
    delete(&server, "db-0");
    create(&server, &[pod("db-0", NODE)]);
    let after = uid(&server, "db-0");
    assert_ne!(before, after);
    let state = until(&names, "the new one is known", |state| {
        state.pods.contains_key(after.as_str())
    });
    assert!(!state.pods.contains_key(before.as_str()));
}

#[test]
fn pod_names_survive_one_minute_api_server_outage() {
    if !ready("pod_names_survive_one_minute_api_server_outage") {
        return;
    }
    let mut server = ApiServer::start();
    create(&server, &[pod("web", NODE)]);
    let names = follow(server.kubeconfig());
    until(&names, "the pod is known", |state| has(state, "web"));
    let failures = names.read().failures;
    let gone = Instant::now();
    server.kill();
    let state = until(&names, "the outage is reported", |state| {
        !state.failure.is_empty()
    });
    assert!(has(&state, "web"));
    while gone.elapsed() < OUTAGE {
        sleep(Duration::from_secs(5));
        let state = names.read();
        assert!(has(&state, "web"), "{state:?}");
        let age = state.age.expect("it was there once");
        // The last contact was before the server ended, with some tolerance.
        assert!(age + Duration::from_secs(5) >= gone.elapsed(), "{age:?}");
    }
    let tries = names.read().failures - failures;
    println!("{tries} tries in {} s", gone.elapsed().as_secs());
    assert!(tries <= 15, "{tries} tries in a minute");
    server.resume();
    create(&server, &[pod("later", NODE)]);
    let back = Instant::now();
    // The next retry comes after a minute at most.
    let state = loop {
        let state = names.read();
        if state.failure.is_empty() && has(&state, "later") {
            break state;
        }
        assert!(back.elapsed() < Duration::from_secs(90), "{state:?}");
        sleep(Duration::from_millis(200));
    };
    assert!(has(&state, "web"));
}

#[test]
fn missing_list_permission_is_reported_until_granted() {
    if !ready("missing_list_permission_is_reported_until_granted") {
        return;
    }
    let server = ApiServer::start();
    create(&server, &[pod("web", NODE)]);
    server.ask(["create", "namespace", "virtlens"]);
    server.ask(["create", "serviceaccount", "virtlens", "-n", "virtlens"]);
    let token = server.ask(["create", "token", "virtlens", "-n", "virtlens"]);
    let dir = tempfile::tempdir().expect("there is room for a folder");
    let kubeconfig = kubeconfig(dir.path(), &server, &server.url());
    std::fs::write(dir.path().join("token"), token).expect("a file can be written");
    let names = follow(kubeconfig);
    let state = until(&names, "it is refused", |state| state.failures > 0);
    assert!(
        state.failure.contains("grant list and watch"),
        "{}",
        state.failure
    );
    assert!(state.pods.is_empty() && state.age.is_none());
    server.ask([
        "create",
        "clusterrole",
        "virtlens",
        "--verb=list,watch",
        "--resource=pods",
    ]);
    server.ask([
        "create",
        "clusterrolebinding",
        "virtlens",
        "--clusterrole=virtlens",
        "--serviceaccount=virtlens:virtlens",
    ]);
    let state = until(&names, "it is allowed", |state| has(state, "web"));
    assert_eq!(state.failure, "");
}

#[test]
fn rotated_token_is_read_again() {
    if !ready("rotated_token_is_read_again") {
        return;
    }
    let server = ApiServer::start();
    create(&server, &[pod("web", NODE)]);
    let dir = tempfile::tempdir().expect("there is room for a folder");
    let path = kubeconfig(dir.path(), &server, &server.url());
    let token = dir.path().join("token");
    std::fs::write(&token, "of-yesterday").expect("a file can be written");
    let names = follow(path);
    let state = until(&names, "it is refused", |state| state.failures > 0);
    assert!(state.failure.contains("(401)"), "{}", state.failure);
    std::fs::write(&token, server.admin_token()).expect("a file can be written");
    until(&names, "the new token is taken", |state| has(state, "web"));
}

/// While the connection was cut, pods were created and deleted, and etcd compacted these
/// changes: the known resource version is rejected with 410, and the agent lists again.
#[test]
fn expired_version_causes_new_list() {
    if !ready("expired_version_causes_new_list") {
        return;
    }
    let mut server = ApiServer::start();
    create(&server, &[pod("old", NODE)]);
    let proxy = Proxy::start(&server.url());
    let dir = tempfile::tempdir().expect("there is room for a folder");
    std::fs::write(dir.path().join("token"), server.admin_token()).expect("a file");
    let names = follow(kubeconfig(dir.path(), &server, &proxy.url()));
    until(&names, "the pod is known", |state| has(state, "old"));
    proxy.cut();
    until(&names, "the failure is reported", |state| {
        !state.failure.is_empty()
    });
    create(&server, &[pod("new", NODE)]);
    delete(&server, "old");
    create(&server, &[pod("passer-by", NODE)]);
    delete(&server, "passer-by");
    compact(&server);
    // The server's watch cache is in its memory.
    server.kill();
    server.resume();
    proxy.mend();
    let state = until(&names, "all is known anew", |state| {
        has(state, "new") && state.failure.is_empty()
    });
    assert_eq!(state.pods.len(), 1, "{:?}", state.pods);
}

/// Compacts etcd to the present revision.
fn compact(server: &ApiServer) {
    let ask = |path: &str, body: &str| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sSf", "-d", body, &format!("{}{path}", server.etcd_url())]);
        let output = curl.output().expect("curl can be started");
        assert!(output.status.success(), "{curl:?}: {output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("etcd answers in JSON")
    };
    let answer = ask("/v3/kv/range", r#"{"key": "YQ=="}"#);
    let revision = answer["header"]["revision"].as_str().expect("a revision");
    ask(
        "/v3/kv/compaction",
        &format!(r#"{{"revision": {revision}, "physical": true}}"#),
    );
}

#[test]
fn old_etcd_without_streaming_lists_is_listed_in_pages() {
    const TEST: &str = "old_etcd_without_streaming_lists_is_listed_in_pages";
    let old = need::old_etcd();
    if !need::all(TEST, [need::api_server(), old.clone().map(drop)]) {
        return;
    }
    let server = ApiServer::start_with(&old.expect("it was asked for"));
    create(&server, &[pod("web", NODE), pod("far", "node-b")]);
    let names = follow(server.kubeconfig());
    let state = until(&names, "the pod is known", |state| has(state, "web"));
    assert_eq!((state.failures, state.pods.len()), (0, 1), "{state:?}");
    create(&server, &[pod("later", NODE)]);
    until(&names, "changes are followed", |state| has(state, "later"));
    delete(&server, "web");
    until(&names, "also those", |state| !has(state, "web"));
}

/// Writes a kubeconfig whose token is in a file, like a pod's service account token.
fn kubeconfig(dir: &std::path::Path, server: &ApiServer, url: &str) -> std::path::PathBuf {
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": url, "certificate-authority": server.ca_file()}}],
        "users": [{"name": "agent", "user": {"tokenFile": dir.join("token")}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "agent"}}],
    });
    let path = dir.join("kubeconfig");
    std::fs::write(&path, config.to_string()).expect("a file can be written");
    path
}

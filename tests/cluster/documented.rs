//! The commands of kubectl and helm in the documentation, run against a real API server.

use std::process::{Command, Output};

use serde_json::json;
use virtlens_tests::page_commands::{Words, all_commands, commands_of};
use virtlens_tests::pages::{pages, root};
use virtlens_tests::{ApiServer, need};

use crate::chart::{crds, define_kinds};
use crate::pods::create;

/// Commands that need a kubelet, which this cluster lacks: only their flags are checked.
const OF_KUBELET: [&str; 3] = ["exec", "logs", "test"];

/// A pod under the placeholder of the pages for an agent's pod: without a controller, no
/// `DaemonSet` has pods.
fn agent_pod() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "agent-pod", "namespace": "virtlens"},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "virtlens", "image": "virtlens"}]}})
}

/// A node under their placeholder for one.
fn node() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
}

/// A service account under their placeholder for one. No controller creates the default one here.
const ACCOUNT: &str = "reader";

fn is_of_cluster(words: &Words) -> bool {
    ["helm", "kubectl"].contains(&&*words[0])
}

/// Runs a command in the root of the repository, as the pages assume.
fn run(server: &ApiServer, words: &Words) -> Output {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words.iter().any(|word| OF_KUBELET.contains(word)) {
        // The words after it are a command in the container.
        words.truncate(
            words
                .iter()
                .position(|word| *word == "--")
                .unwrap_or(words.len()),
        );
        words.push("--help");
    } else if words.contains(&"delete") {
        // No controller removes a namespace here.
        words.push("--wait=false");
    }
    let words = words.iter().map(|word| match *word {
        "AGENT_POD" => "agent-pod",
        "NODE" => "node-a",
        "SERVICEACCOUNT" => ACCOUNT,
        word => word,
    });
    let words: Vec<&str> = words.collect();
    println!("{}", words.join(" "));
    let mut command = server.kubectl(words[1..].iter().copied());
    if words[0] == "helm" {
        command = Command::new("helm");
        command
            .args(&words[1..])
            .env("KUBECONFIG", server.kubeconfig());
    }
    let output = command.current_dir(root()).output();
    output.expect("the program can be started")
}

/// A cluster with virtlens and the kinds of the Prometheus operator.
fn installed() -> ApiServer {
    let server = ApiServer::start();
    define_kinds(&server);
    let manifest = root().join("deploy/manifests/virtlens.yaml");
    let manifest = manifest.to_str().expect("UTF-8");
    server.ask(["apply", "--server-side", "--filename", manifest]);
    create(&server, &[agent_pod(), node()]);
    server.ask(["create", "serviceaccount", ACCOUNT]);
    server
}

/// Whether a command changes a cluster without virtlens to one with it.
fn installs(words: &Words) -> bool {
    let verbs = ["apply", "create", "install"];
    words.iter().any(|word| verbs.contains(&word.as_str()))
}

#[test]
fn every_kubectl_and_helm_command_of_the_docs_runs() {
    let test = "every_kubectl_and_helm_command_of_the_docs_runs";
    if !need::all(test, [need::api_server(), need::helm(), crds().map(drop)]) {
        return;
    }
    let (mut count, mut failed) = (0, Vec::new());
    let mut check = |server: &ApiServer, page: &str, words: &Words| {
        count += 1;
        let output = run(server, words);
        if !output.status.success() {
            failed.push(format!("{page}: {words:?}: {output:?}"));
        }
    };
    let with_virtlens = installed();
    let mut in_blocks = Vec::new();
    for page in pages() {
        for block in page.blocks() {
            let commands = commands_of(&block).expect("another test checks the pages");
            let commands: Vec<Words> = commands.into_iter().filter(is_of_cluster).collect();
            let empty = commands.first().filter(|words| installs(words));
            let empty = empty.map(|_| ApiServer::start());
            for words in &commands {
                check(
                    empty.as_ref().unwrap_or(&with_virtlens),
                    &page.name(),
                    words,
                );
            }
            in_blocks.extend(commands);
        }
    }
    // Those in sentences may lack arguments if they are helm's.
    for (page, words) in all_commands().0 {
        if words[0] == "kubectl" && !in_blocks.contains(&words) {
            check(&with_virtlens, &page, &words);
        }
    }
    assert!(count >= 15, "{count} commands");
    assert!(failed.is_empty(), "{failed:#?}");
}

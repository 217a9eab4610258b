//! The example configuration in a real Alertmanager: an alert that is the cause of another one
//! inhibits it, and only for the same VM or node.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use virtlens_tests::{eventually, http, need};

/// The program, found in `PATH`.
const PROGRAM: &str = "prometheus-alertmanager";

/// Debian's program reads its templates from /usr/share, but the package is only unpacked.
/// `$0` is the program; `exec` keeps its process id.
const WITH_TEMPLATES: &str = "set -e
    package=$(dirname \"$(command -v \"$0\")\")/../share/prometheus/alertmanager
    templates=$(mktemp -d)
    cp \"$package\"/*.tmpl \"$templates\"
    mount -t tmpfs none /usr/share
    mkdir -p /usr/share/prometheus/alertmanager
    cp \"$templates\"/*.tmpl /usr/share/prometheus/alertmanager
    rm -r \"$templates\"
    exec \"$0\" \"$@\"";

/// A running Alertmanager; killed on drop.
struct Alertmanager {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Alertmanager {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let log = File::create(folder.path().join("log")).expect("it can be made");
        let address = http::free_address();
        let child = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", WITH_TEMPLATES])
            .arg(PROGRAM)
            .arg(format!("--config.file={}", example().display()))
            .arg(format!("--storage.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("alertmanager is in PATH");
        let alertmanager = Self {
            child,
            address,
            _folder: folder,
        };
        eventually("Alertmanager to be ready", || {
            let answer = alertmanager.ask("GET", "/-/ready", "").ok()?;
            answer.contains(" 200 ").then_some(())
        });
        alertmanager
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        http::ask(self.address, method, path, body)
    }

    /// The state of each alert: name, `instance` and `vm`, and whether it is inhibited.
    fn states(&self) -> Option<Vec<(String, bool)>> {
        let answer = self.ask("GET", "/api/v2/alerts", "").ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let alerts: Vec<Value> = serde_json::from_str(body).ok()?;
        let mut states: Vec<(String, bool)> = alerts
            .iter()
            .map(|alert| {
                let label = |name: &str| alert["labels"][name].as_str().unwrap_or("-").to_owned();
                let inhibitors = alert["status"]["inhibitedBy"].as_array();
                (
                    ["alertname", "instance", "vm"].map(label).join(" "),
                    inhibitors.is_some_and(|all| !all.is_empty()),
                )
            })
            .collect();
        states.sort();
        Some(states)
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn example() -> PathBuf {
    virtlens_deploy::root().join("deploy/prometheus/alertmanager.example.yaml")
}

fn of_vm(alert: &str, instance: &str, vm: &str) -> Value {
    json!({ "labels": {
        "alertname": alert, "cluster": "c", "instance": instance, "namespace": "shop",
        "pod": format!("{vm}-0"), "vm": vm, "severity": "warning",
    } })
}

fn of_node(alert: &str, instance: &str) -> Value {
    json!({ "labels": {
        "alertname": alert, "cluster": "c", "instance": instance, "severity": "warning",
    } })
}

#[test]
fn cause_inhibits_alerts_of_the_same_vm_or_node() {
    let test = "cause_inhibits_alerts_of_the_same_vm_or_node";
    if !need::all(test, [need::alertmanager(), need::mount_namespace()]) {
        return;
    }
    let alertmanager = Alertmanager::start();
    let alerts = [
        of_vm("VirtlensCPUQuotaSaturated", "n1", "a"),
        of_vm("VirtlensIOHelperThrottled", "n1", "a"),
        of_vm("VirtlensIOHelperThrottled", "n1", "b"),
        of_node("VirtlensNodeContended", "n1"),
        of_vm("VirtlensVCPUStealHigh", "n1", "a"),
        of_vm("VirtlensVCPUStealHigh", "n2", "c"),
        of_node("VirtlensAgentBlind", "n3"),
        of_node("VirtlensAgentSourceDown", "n3"),
        of_node("VirtlensAgentSourceDown", "n4"),
    ];
    let body = Value::from(alerts.to_vec()).to_string();
    let answer = alertmanager.ask("POST", "/api/v2/alerts", &body);
    let answer = answer.expect("Alertmanager answers");
    assert!(answer.contains(" 200 "), "{answer}");
    let mut expected = [
        ("VirtlensCPUQuotaSaturated n1 a", false),
        ("VirtlensIOHelperThrottled n1 a", true),
        ("VirtlensIOHelperThrottled n1 b", false),
        ("VirtlensNodeContended n1 -", false),
        ("VirtlensVCPUStealHigh n1 a", true),
        ("VirtlensVCPUStealHigh n2 c", false),
        ("VirtlensAgentBlind n3 -", false),
        ("VirtlensAgentSourceDown n3 -", true),
        ("VirtlensAgentSourceDown n4 -", false),
    ]
    .map(|(alert, inhibited)| (alert.to_owned(), inhibited));
    expected.sort();
    let mut last = Vec::new();
    eventually("the inhibitions", || {
        let states = alertmanager.states()?;
        if states != last {
            println!("{states:#?}");
            last = states;
        }
        (last == expected).then_some(())
    });
}

#[test]
fn example_names_existing_alerts_and_passes_amtool() {
    let test = "example_names_existing_alerts_and_passes_amtool";
    if !need::all(test, [need::alertmanager()]) {
        return;
    }
    let output = Command::new("amtool")
        .arg("check-config")
        .arg(example())
        .output();
    let output = output.expect("amtool comes with Alertmanager");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(example()).expect("it is a text");
    let names: Vec<&str> = virtlens_deploy::rules::alerts()
        .map(|alert| alert.name)
        .collect();
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let words = text
        .split(|c| !is_part(c))
        .filter(|word| word.starts_with("Virtlens"));
    let unknown: Vec<&str> = words
        .filter(|word| *word != "Virtlens" && !names.contains(word))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

//! The example configuration in a real Alertmanager: an alert that is the cause of another one
//! inhibits it, and only for the same VM or node.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use virtlens_tests::alertmanager::Alertmanager;
use virtlens_tests::{eventually, need};

/// The state of each alert: name, `instance` and `vm`, and whether it is inhibited.
fn states(alertmanager: &Alertmanager) -> Option<Vec<(String, bool)>> {
    let answer = alertmanager.ask("GET", "/api/v2/alerts", "").ok()?;
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
    let alertmanager = Alertmanager::start(&example());
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
    alertmanager.fire(&alerts);
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
        let states = states(&alertmanager)?;
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

//! Debian's promtool as the judge of the rules.

use std::fs;

use virtlens_deploy::tokens::PodLabels;
use virtlens_deploy::{root, rules};
use virtlens_tests::promtool;

/// The names of the rule files, as `tests.yaml` has them.
const FILES: [&str; 2] = ["recording-rules.yaml", "alerting-rules.yaml"];

#[test]
fn promtool_accepts_rules() {
    for folder in ["deploy/prometheus", "deploy/exported/rules"] {
        for name in FILES {
            let file = root().join(folder).join(name).display().to_string();
            promtool::run(
                "promtool_accepts_rules",
                &["check", "rules", "--lint-fatal", &file],
            );
        }
    }
}

#[test]
fn every_alert_fires_only_on_its_condition() {
    let file = root().join("deploy/prometheus/tests.yaml");
    let file = file.display().to_string();
    promtool::run(
        "every_alert_fires_only_on_its_condition",
        &["test", "rules", &file],
    );
}

/// The tests with the names that a Prometheus with such labels gives the labels of pods.
fn renamed(tests: &str, labels: PodLabels) -> String {
    let [namespace, pod] = ["@namespace", "@pod"].map(|label| labels.name(label));
    let lines = tests.lines().map(|line| {
        // The series of kube-state-metrics are about other pods for every Prometheus.
        if line.contains("'kube_") {
            line.to_owned()
        } else if line.contains("exp_labels:") {
            line.replace(" namespace: ", &format!(" {namespace}: "))
                .replace(" pod: ", &format!(" {pod}: "))
        } else {
            line.replace("namespace=\"", &format!("{namespace}=\""))
                .replace("{pod=\"", &format!("{{{pod}=\""))
                .replace(",pod=\"", &format!(",{pod}=\""))
        }
    });
    lines.map(|line| line + "\n").collect()
}

/// Annotations are the same with both.
#[test]
fn every_alert_fires_on_the_same_condition_with_exported_labels() {
    let test = "every_alert_fires_on_the_same_condition_with_exported_labels";
    let labels = PodLabels::Exported;
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let [recording, alerting] = FILES.map(|name| folder.path().join(name));
    let recordings = rules::recording_yaml(labels).expect("it can be made");
    fs::write(recording, recordings).expect("it can be written");
    let alerts = rules::alerting_yaml(labels).expect("it can be made");
    fs::write(alerting, alerts).expect("it can be written");
    let tests = fs::read_to_string(root().join("deploy/prometheus/tests.yaml"));
    let tests = renamed(&tests.expect("it is a text"), labels);
    assert!(tests.contains("exported_pod: web-0"), "nothing is renamed");
    let file = folder.path().join("tests.yaml");
    fs::write(&file, tests).expect("it can be written");
    promtool::run(test, &["test", "rules", &file.display().to_string()]);
}

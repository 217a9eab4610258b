//! Debian's promtool as the judge of the rules.

use virtlens_tests::promtool;

#[test]
fn promtool_accepts_rules() {
    let folder = virtlens_deploy::root().join("deploy/prometheus");
    for name in ["recording-rules.yaml", "alerting-rules.yaml"] {
        let file = folder.join(name).display().to_string();
        promtool::run(
            "promtool_accepts_rules",
            &["check", "rules", "--lint-fatal", &file],
        );
    }
}

#[test]
fn every_alert_fires_only_on_its_condition() {
    let file = virtlens_deploy::root().join("deploy/prometheus/tests.yaml");
    let file = file.display().to_string();
    promtool::run(
        "every_alert_fires_only_on_its_condition",
        &["test", "rules", &file],
    );
}

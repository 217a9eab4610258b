//! With the metrics of the profile `minimal` alone, every alert of severity warning about VMs
//! fires.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use virtlens_deploy::rules::{self, Severity};
use virtlens_deploy::tokens::PodLabels;
use virtlens_deploy::{promql, root};
use virtlens_export::{Profile, families};
use virtlens_tests::promtool;

/// Names of the VMs of one node.
const VMS: [&str; 4] = ["a", "b", "c", "d"];

/// Bytes of the limit, and of the growth per minute of resident memory.
const LIMIT_BYTES: u64 = 1000 << 20;
const GROWTH_BYTES: u64 = 8 << 20;

fn vm(name: &str) -> String {
    format!("cluster=\"c\",instance=\"n1\",namespace=\"shop\",pod=\"{name}-0\",vm=\"{name}\"")
}

/// The series of VMs that fail all checks, and whose memory grows up to its limit.
fn series() -> Vec<(String, String)> {
    let alerts = rules::alerts().filter_map(|alert| alert.check);
    let checks: BTreeSet<&str> = alerts.flat_map(|checks| checks.split('|')).collect();
    let mut series = Vec::new();
    for name in VMS {
        let vm = vm(name);
        let mut add = |metric: &str, labels: &str, values: String| {
            series.push((format!("{metric}{{{vm}{labels}}}"), values));
        };
        add("virtlens_vm_info", "", "1+0x60".to_owned());
        for check in &checks {
            let labels = format!(",check=\"{check}\",severity=\"warning\"");
            add("virtlens_finding", &labels, "1+0x60".to_owned());
        }
        let resident = LIMIT_BYTES - 60 * GROWTH_BYTES;
        let growing = format!("{resident}+{GROWTH_BYTES}x60");
        add("virtlens_memory_resident_bytes", "", growing);
        add(
            "virtlens_memory_cgroup_limit_bytes",
            "",
            format!("{LIMIT_BYTES}+0x60"),
        );
        add("virtlens_memory_oom_kills_total", "", "0+1x60".to_owned());
    }
    series
}

/// Alerts about agents and nodes without agents do not depend on the profile.
const OF_AGENTS: &str = "VirtlensAgent";
const OF_NODES_WITHOUT_AGENTS: &str = "VirtlensNodeWithoutAgent";
const OF_METADATA: &str = "VirtlensMetadataStale";

#[test]
fn every_warning_about_vms_fires_with_minimal_metrics() {
    let minimal: BTreeSet<&str> = families()
        .filter(|family| family.profile == Some(Profile::Minimal))
        .map(|family| family.name)
        .collect();
    let series = series();
    for (name, _) in &series {
        let selectors = promql::selectors(name).expect("PromQL");
        assert!(minimal.contains(&*selectors[0].metric), "{name}");
    }
    let labels = PodLabels::Kept;
    let mut file = format!(
        "rule_files: [{0}/recording-rules.yaml, {0}/alerting-rules.yaml]\n\
         evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n",
        root().join("deploy/prometheus").display()
    );
    for (name, values) in &series {
        writeln!(file, "  - {{series: '{name}', values: '{values}'}}").expect("a String takes it");
    }
    writeln!(file, "  promql_expr_test:").expect("a String takes it");
    let warnings = rules::alerts().filter(|alert| alert.severity == Severity::Warning);
    let about_vms = warnings.filter(|alert| {
        !alert.name.starts_with(OF_AGENTS)
            && ![OF_NODES_WITHOUT_AGENTS, OF_METADATA].contains(&alert.name)
    });
    let mut number = 0;
    for alert in about_vms {
        number += 1;
        // The headroom is small only in the last minutes.
        let query = alert
            .expression(labels)
            .replace('\n', " ")
            .replace('\'', "''");
        writeln!(
            file,
            "  - expr: 'count({query}) > bool 0'\n    eval_time: 58m\n    exp_samples: [{{labels: \
             '{{}}', value: 1}}]"
        )
        .expect("a String takes it");
    }
    assert!(number >= 7, "only {number} alerts are about VMs");
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("minimal.yaml");
    fs::write(&path, file).expect("it can be written");
    let args = ["test", "rules", &path.display().to_string()];
    promtool::run("every_warning_about_vms_fires_with_minimal_metrics", &args);
}

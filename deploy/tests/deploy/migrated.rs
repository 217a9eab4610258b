//! A VM that `KubeVirt` migrates keeps its name, while its pod and its node change. Charts of the
//! dashboard Pod show it as one series.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use virtlens_deploy::DASHBOARDS;
use virtlens_deploy::dashboard::{Draw, Target};
use virtlens_deploy::promql;
use virtlens_deploy::tokens::{self, PodLabels};
use virtlens_tests::promtool;

/// A value of each label of a family.
const LABELS: &str = "role=\"vcpu\",scope=\"pod\",vcpu=\"0\",kind=\"a\",result=\"success\",\
                      worker=\"0\",operation=\"inflate\",distance=\"smt\",state=\"split\",le=\"1\"";

/// Before the migration and after it: node, pod, and the values of a series.
const SIDES: [(&str, &str, &str); 2] = [
    ("node-a", "virt-launcher-db-x7k2p", "0+60x10 stale"),
    ("node-b", "virt-launcher-db-9q4mz", "_x12 0+60x20"),
];

fn charts() -> Vec<&'static Target> {
    let pod = DASHBOARDS.iter().find(|one| one.name == "pod");
    let panels = pod.expect("alerts link to it").panels();
    let charts = panels.filter(|panel| panel.draw != Draw::Table);
    charts.flat_map(|panel| panel.targets).collect()
}

fn query(target: &Target) -> String {
    let mut text = tokens::query(target.query, PodLabels::Kept);
    for name in ["cluster", "instance", "namespace", "pod", "vm"] {
        text = text.replace(&format!("\"${name}\""), "\".*\"");
    }
    text.replace("$__rate_interval", "5m").replace('\n', " ")
}

#[test]
fn charts_of_pod_show_a_migrated_vm_as_one_series() {
    let queries: Vec<String> = charts().into_iter().map(query).collect();
    assert!(queries.len() > 20, "{}", queries.len());
    let mut file = "evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n".to_owned();
    let mut line = |text: String| writeln!(file, "{text}").expect("a String takes it");
    let metrics: BTreeSet<String> = queries
        .iter()
        .flat_map(|query| promql::selectors(query).expect("another test parses them"))
        .map(|selector| selector.metric)
        .collect();
    for metric in metrics {
        for (node, pod, values) in SIDES {
            let vm = format!("instance=\"{node}\",namespace=\"vms\",pod=\"{pod}\",vm=\"vms_db\"");
            line(format!("  - series: '{metric}{{{vm},{LABELS}}}'"));
            line(format!("    values: '{values}'"));
        }
    }
    line("  promql_expr_test:".to_owned());
    // Negative control: two label sets without grouping.
    let ungrouped = ("vm_scope:virtlens_throttled:ratio_rate5m".to_owned(), 2);
    let cases = queries.into_iter().map(|query| (query, 1));
    for (query, count) in cases.chain([ungrouped]) {
        // The number of label sets over all times.
        line(format!(
            "  - expr: 'count(count_over_time(({query})[30m:1m]))'"
        ));
        line("    eval_time: 30m".to_owned());
        line(format!(
            "    exp_samples: [{{labels: '{{}}', value: {count}}}]"
        ));
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("migrated.yaml");
    fs::write(&path, file).expect("it can be written");
    let args = ["test", "rules", &path.display().to_string()];
    promtool::run("charts_of_pod_show_a_migrated_vm_as_one_series", &args);
}

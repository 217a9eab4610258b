//! The joins with other exporters in docs/prometheus.md yield the expected series.

use std::fmt::Write as _;
use std::fs;

use virtlens_deploy::root;
use virtlens_tests::promtool;

/// Series as exporters show them.
const SERIES: &str = include_str!("joins.prom");

/// For each query of the section, in order, the expected samples: labels and value.
const EXPECTED: [&[(&str, &str)]; 4] = [
    // Cores by node.
    &[(r#"{node="n1"}"#, "0.8"), (r#"{node="n2"}"#, "1")],
    // Cores by a label of pods.
    &[
        (r#"{label_app="web"}"#, "0.8"),
        (r#"{label_app="db"}"#, "1"),
    ],
    // Resident memory by guest operating system.
    &[(r#"{guest_os_name="Fedora"}"#, "4e9")],
    // Share of the CPU time of the pod's cgroup that virtlens counts.
    &[
        (r#"{namespace="shop",pod="web-0"}"#, "1"),
        (r#"{namespace="vms",pod="virt-launcher-db-x7k2p"}"#, "1"),
    ],
];

/// The queries of the section on joins.
fn queries() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/prometheus.md")).expect("it is a text");
    let (_, section) = page.split_once("\n## Joins").expect("it has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let blocks = section.split("```promql\n").skip(1);
    let queries = blocks.map(|block| block.split("```").next().unwrap_or(block));
    queries.map(|query| query.trim().to_owned()).collect()
}

#[test]
fn joins_with_other_exporters_yield_series() {
    let queries = queries();
    assert_eq!(queries.len(), EXPECTED.len(), "each query has its samples");
    let mut file = "evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n".to_owned();
    let mut line = |text: String| writeln!(file, "{text}").expect("a String takes it");
    let series = SERIES.lines().filter(|line| !line.starts_with('#'));
    for (series, value) in series.filter_map(|line| line.rsplit_once(' ')) {
        let is_counter = series.contains("_total{");
        let values = if is_counter {
            format!("0+{value}x20")
        } else {
            format!("{value}+0x20")
        };
        line(format!("  - {{series: '{series}', values: '{values}'}}"));
    }
    line("  promql_expr_test:".to_owned());
    for (query, samples) in queries.iter().zip(EXPECTED) {
        let query = query.replace('\n', " ").replace('\'', "''");
        line(format!("  - expr: 'round({query}, 0.001)'"));
        line("    eval_time: 15m\n    exp_samples:".to_owned());
        for (labels, value) in samples {
            line(format!("    - {{labels: '{labels}', value: {value}}}"));
        }
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("joins.yaml");
    fs::write(&path, file).expect("it can be written");
    let args = ["test", "rules", &path.display().to_string()];
    promtool::run("joins_with_other_exporters_yield_series", &args);
}

//! `virtlens check`: what this kernel offers, and what its lacks cost.

use std::fmt::Write as _;

use virtlens_model::snapshot::Node;

use crate::collect::CheckRow;

/// The report, a line for each feature.
pub fn report(node: &Node, features: &[CheckRow]) -> String {
    let mut out = format!(
        "{}: Linux {}, {} CPUs, cgroup {}\n\n",
        node.name, node.kernel, node.cpus, node.cgroup
    );
    let names = features.iter().map(|row| row.feature.len());
    let width = names.max().unwrap_or(0).max("FEATURE".len());
    let mut line = |name: &str, state: &str, detail: &str| {
        let line = format!("{name:width$}  {state:8}  {detail}");
        writeln!(out, "{}", line.trim_end()).expect("a String takes everything");
    };
    line("FEATURE", "STATE", "DETAIL");
    for row in features {
        line(row.feature, row.state, &row.detail);
    }
    out
}

/// Whether nothing is off and nothing degraded.
pub fn all_on(features: &[CheckRow]) -> bool {
    features.iter().all(|row| row.state == "on")
}

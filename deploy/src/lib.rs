//! What an SRE puts beside the agent: Prometheus rules, Grafana dashboards and
//! the reference of metrics, made from tables in this package and from the one
//! table of metric families.
//!
//! ```text
//! rules/{recording,alerts}.rs ──► chart/virtlens/files/rules/*.yaml
//! dashboards/*.rs             ──► chart/virtlens/files/dashboards/*.json
//! virtlens_export::families   ──► ../docs/metrics.md
//! ```
//!
//! `make generate` writes them, a test compares. A chart may hold no links, so the
//! files are there, and `prometheus/` and `grafana` lead to them.
//!
//! Queries stand in the tables with [`tokens`] for what all of them repeat.

#![forbid(unsafe_code)]

pub mod dashboard;
mod dashboards;
pub mod promql;
pub mod rules;
pub mod tokens;

use std::path::Path;

pub use dashboards::DASHBOARDS;

const DASHBOARD_FILES: &str = "deploy/chart/virtlens/files/dashboards";

/// One file that is made, by its path in the repository.
#[derive(Debug)]
pub struct File {
    /// From the root of the repository.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// Everything that is made.
///
/// # Errors
///
/// When something cannot be written as YAML or JSON, which would be a bug.
pub fn files() -> anyhow::Result<Vec<File>> {
    let mut files = vec![
        File {
            path: "deploy/chart/virtlens/files/rules/recording-rules.yaml".to_owned(),
            text: rules::recording_yaml()?,
        },
        File {
            path: "deploy/chart/virtlens/files/rules/alerting-rules.yaml".to_owned(),
            text: rules::alerting_yaml()?,
        },
        File {
            path: "docs/metrics.md".to_owned(),
            text: metrics(),
        },
    ];
    for dashboard in DASHBOARDS {
        files.push(File {
            path: format!("{DASHBOARD_FILES}/{}.json", dashboard.name),
            text: serde_json::to_string_pretty(&dashboard.json())? + "\n",
        });
    }
    Ok(files)
}

/// The root of the repository that this was built from.
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("it is a folder of the repository")
}

fn metrics() -> String {
    format!(
        "# Metrics\n\n\
         Made by `make generate` from the table that `virtlens metrics` prints.\n\
         Every series of a VM has the labels `namespace`, `pod` and `vm`; a name that is not\n\
         known is empty, which to Prometheus is no label. What a kernel does not tell has no\n\
         series, never 0: `virtlens_source_up` says which sources work.\n\n{}",
        virtlens_export::markdown()
    )
}

//! Generates the Prometheus rules, the Grafana dashboards and the reference of metrics
//! from the tables of this package and the table of metric families.
//!
//! ```text
//! rules/{recording,alerts}.rs ──► chart/virtlens/files/rules/*.yaml
//! dashboards/*.rs             ──► chart/virtlens/files/dashboards/*.json
//! virtlens_export::families   ──► ../docs/metrics.md
//! ```
//!
//! `make generate` writes the files, and a test compares them. A chart must not contain
//! symbolic links, so the files are in the chart, and `prometheus/` and `grafana` link to
//! them.
//!
//! Queries in the tables use [`tokens`] for their common parts.

#![forbid(unsafe_code)]

pub mod dashboard;
mod dashboards;
pub mod promql;
pub mod rules;
pub mod tokens;

use std::path::Path;

pub use dashboards::DASHBOARDS;

const DASHBOARD_FILES: &str = "deploy/chart/virtlens/files/dashboards";

/// A generated file.
#[derive(Debug)]
pub struct File {
    /// Path from the root of the repository.
    pub path: String,
    /// Whole content.
    pub text: String,
}

/// All generated files.
///
/// # Errors
///
/// If the data cannot be written as YAML or JSON, which would be a bug.
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

/// Root of the repository of this build.
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

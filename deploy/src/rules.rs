//! The Prometheus rules: tables and their YAML.

mod alerts;
mod recording;

use std::collections::BTreeMap;

pub use alerts::{AGENT_ALERTS, CPU_ALERTS, MEMORY_ALERTS};
pub use recording::GROUPS;
use serde::Serialize;

use crate::tokens::{self, PodLabels};

/// Directory of the runbooks in this repository. The chart prepends the URL under which a
/// user publishes them.
pub const RUNBOOKS: &str = "docs/runbooks";

/// A recording rule.
#[derive(Debug)]
pub struct Recording {
    /// `level:metric:operation`; the levels are `vm` and those below it, and `namespace` of a node.
    pub name: &'static str,
    /// The query, with [`tokens`].
    pub query: &'static str,
}

/// Severity of an alert. None is critical, since no alert means that a VM is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A VM loses time or throughput now, or data is missing: a ticket.
    Warning,
    /// Waste or a latent problem: no page.
    Info,
}

/// An alerting rule.
#[derive(Debug)]
pub struct Alert {
    /// Name of the alert and of its runbook.
    pub name: &'static str,
    /// Severity.
    pub severity: Severity,
    /// The query, with [`tokens`].
    pub query: &'static str,
    /// Duration for which the condition must hold (`for`).
    pub hold: &'static str,
    /// Duration for which the alert keeps firing after its condition ends.
    pub keep: Option<&'static str>,
    /// One sentence, the same for every affected object.
    pub summary: &'static str,
    /// Details of the affected object, with [`tokens`].
    pub description: &'static str,
    /// The checks of `virtlens doctor` with the same condition, as a regular expression. Where
    /// the profile `minimal` lacks the series of the query, the agent's findings decide.
    pub check: Option<&'static str>,
}

impl Alert {
    /// The query with its tokens replaced.
    pub fn query(&self, labels: PodLabels) -> String {
        tokens::query(self.query, labels)
    }

    /// The expression of the rule: the query, or else the agent's findings.
    pub fn expression(&self, labels: PodLabels) -> String {
        let Some(check) = self.check else {
            return self.query(labels);
        };
        let findings = format!(
            "{}\nor on (@vm)\n(\n  \
             vm_check:virtlens_finding:share_5m{{check=~\"{check}\"}} > 0.90\n  \
             unless on (@vm)\n  \
             virtlens_cpu_wait_seconds_total{{role=\"vcpu\"}}\n)",
            self.query
        );
        tokens::query(&findings, labels)
    }

    /// The description with its tokens replaced.
    pub fn description(&self, labels: PodLabels) -> String {
        let description = self.description;
        if self.check.is_none() {
            return tokens::text(description, labels);
        }
        let text = format!(
            "{{{{ if $labels.check }}}}@who fails the check {{{{ $labels.check }}}}. On its node, \
             virtlens doctor shows the evidence.{{{{ else }}}}{description}{{{{ end }}}}"
        );
        tokens::text(&text, labels)
    }
}

impl Recording {
    /// The query with its tokens replaced.
    pub fn query(&self, labels: PodLabels) -> String {
        tokens::query(self.query, labels)
    }
}

/// All recording rules.
pub fn recordings() -> impl Iterator<Item = &'static Recording> {
    GROUPS.iter().flat_map(|(_, rules)| rules.iter())
}

/// All alerts.
pub fn alerts() -> impl Iterator<Item = &'static Alert> {
    let vms = CPU_ALERTS.iter().chain(MEMORY_ALERTS);
    vms.chain(AGENT_ALERTS)
}

#[derive(Serialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize, Default)]
struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<&'static str>,
    expr: String,
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    hold: Option<&'static str>,
    #[serde(rename = "keep_firing_for", skip_serializing_if = "Option::is_none")]
    keep: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'static str, Severity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

/// The recording rules as a rule file.
///
/// # Errors
///
/// If YAML cannot represent them, which would be a bug.
pub fn recording_yaml(labels: PodLabels) -> anyhow::Result<String> {
    let rule = |one: &Recording| Rule {
        record: Some(one.name),
        expr: one.query(labels),
        ..Rule::default()
    };
    let groups = GROUPS.iter().map(|(name, rules)| Group {
        name,
        rules: rules.iter().map(rule).collect(),
    });
    yaml(groups.collect())
}

/// The alerting rules as a rule file.
///
/// # Errors
///
/// If YAML cannot represent them, which would be a bug.
pub fn alerting_yaml(labels: PodLabels) -> anyhow::Result<String> {
    let groups = [
        ("virtlens.cpu.alerts", CPU_ALERTS, POD),
        ("virtlens.memory.alerts", MEMORY_ALERTS, POD),
        ("virtlens-agent.alerts", AGENT_ALERTS, AGENT),
    ];
    let groups = groups.map(|(name, alerts, dashboard)| Group {
        name,
        rules: alerts
            .iter()
            .map(|one| alert(one, dashboard, labels))
            .collect(),
    });
    yaml(groups.into())
}

const POD: &str = "/d/virtlens-pod?var-namespace={{ $labels.@namespace }}\
                   &var-pod={{ $labels.@pod }}&var-vm={{ $labels.vm | urlquery }}";
const AGENT: &str = "/d/virtlens-agent?var-instance={{ $labels.instance | urlquery }}";

fn alert(alert: &Alert, dashboard: &str, labels: PodLabels) -> Rule {
    Rule {
        alert: Some(alert.name),
        expr: alert.expression(labels),
        hold: Some(alert.hold),
        keep: alert.keep,
        labels: BTreeMap::from([("severity", alert.severity)]),
        annotations: BTreeMap::from([
            ("summary", alert.summary.to_owned()),
            ("description", alert.description(labels)),
            ("runbook", format!("{RUNBOOKS}/{}.md", alert.name)),
            ("dashboard_url", labels.name(dashboard)),
        ]),
        ..Rule::default()
    }
}

fn yaml(groups: Vec<Group>) -> anyhow::Result<String> {
    let rules = serde_norway::to_string(&Groups { groups })?;
    Ok(format!(
        "# Made by `make generate` from deploy/src/rules; change it there.\n{rules}"
    ))
}

//! What queries and texts name is what the agent exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use virtlens_deploy::dashboard::Dashboard;
use virtlens_deploy::promql::{self, Selector};
use virtlens_deploy::tokens::PodLabels;
use virtlens_deploy::{DASHBOARDS, rules, tokens};
use virtlens_export::{Kind, families};
use virtlens_model::snapshot::Check;
use virtlens_model::vocab::{MismatchKind, Role, Scope};

use crate::shape::runbook;

/// Labels that Prometheus adds to what it scrapes.
const OF_TARGETS: [&str; 3] = ["cluster", "instance", "job"];

/// All metrics and recording rules, with their labels.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let set = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
    let mut known = BTreeMap::from([("up".to_owned(), set(&OF_TARGETS))]);
    // kube-state-metrics, and the label that a rule takes from `instance`.
    for (name, labels) in [
        ("kube_pod_info", ["namespace", "pod", "node", "cluster"]),
        (
            "kube_pod_status_phase",
            ["namespace", "pod", "phase", "cluster"],
        ),
        (
            "kube_pod_runtimeclass_name_info",
            ["namespace", "pod", "runtimeclass_name", "cluster"],
        ),
    ] {
        known.insert(name.to_owned(), set(&labels));
    }
    for family in families() {
        let labels = [&family.labels()[..], &OF_TARGETS].concat();
        if family.kind != Kind::Histogram {
            known.insert(family.name.to_owned(), set(&labels));
            continue;
        }
        known.insert(format!("{}_sum", family.name), set(&labels));
        known.insert(format!("{}_count", family.name), set(&labels));
        let labels = [&labels[..], &["le"]].concat();
        known.insert(format!("{}_bucket", family.name), set(&labels));
    }
    for rule in rules::recordings() {
        let (level, _) = rule.name.split_once(':').expect("level:metric:operation");
        let vm = PodLabels::Kept.of_vm();
        let vm = vm.split(", ");
        let labels: Vec<_> = vm.chain(level.split('_').skip(1)).collect();
        known.insert(rule.name.to_owned(), set(&labels));
    }
    known
}

/// Every query that there is, with where it stands.
fn queries() -> Vec<(String, String)> {
    let recordings = rules::recordings().map(|one| (one.name, one.query(PodLabels::Kept)));
    let alerts = rules::alerts().map(|one| (one.name, one.expression(PodLabels::Kept)));
    let mut all: Vec<(String, String)> = recordings
        .chain(alerts)
        .map(|(name, query)| (name.to_owned(), query))
        .collect();
    for dashboard in DASHBOARDS {
        for panel in dashboard.panels() {
            let name = format!("{} / {}", dashboard.name, panel.title);
            let targets = panel.targets.iter();
            all.extend(
                targets.map(|target| (name.clone(), tokens::query(target.query, PodLabels::Kept))),
            );
        }
        let json = dashboard.json(PodLabels::Kept);
        for variable in json["templating"]["list"].as_array().expect("a list") {
            let query = variable["query"]["query"].as_str().unwrap_or_default();
            if let Some(inside) = query.strip_prefix("label_values(") {
                let (selector, _) = inside.rsplit_once(", ").expect("a selector and a label");
                all.push((
                    format!("{} / ${}", dashboard.name, variable["name"]),
                    selector.to_owned(),
                ));
            }
        }
    }
    for file in documents() {
        let text = fs::read_to_string(&file).expect("it is a text");
        let name = file.display().to_string();
        all.extend(blocks(&text).map(|query| (name.clone(), query.to_owned())));
    }
    all
}

/// The blocks of `PromQL` in a document.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("```promql\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap_or(part).trim())
}

/// What people read.
fn documents() -> Vec<PathBuf> {
    let docs = virtlens_deploy::root().join("docs");
    let alerts = rules::alerts().map(|alert| runbook(alert.name));
    let others = ["questions.md", "limits.md", "compare.md"].map(|name| docs.join(name));
    alerts.chain(others).collect()
}

#[test]
fn metrics_and_labels_of_queries_are_exported() {
    let known = known();
    let mut wrong = Vec::new();
    for (name, query) in queries() {
        let selectors = promql::selectors(&query).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut labels = BTreeSet::new();
        for selector in &selectors {
            let Some(of_metric) = known.get(&selector.metric) else {
                wrong.push(format!("{name}: there is no {}", selector.metric));
                continue;
            };
            labels.extend(of_metric);
            for (label, _, _) in &selector.conditions {
                if !of_metric.contains(label) {
                    wrong.push(format!("{name}: {} has no {label}", selector.metric));
                }
            }
            wrong.extend(unknown_values(selector).map(|value| format!("{name}: no {value}")));
        }
        for label in promql::grouping_labels(&query) {
            if !labels.contains(&label) {
                wrong.push(format!("{name}: nothing in it has {label}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Values of closed sets that are not in them.
fn unknown_values(selector: &Selector) -> impl Iterator<Item = String> {
    let conditions = selector.conditions.iter();
    conditions.flat_map(|(label, _, value)| {
        let closed: Vec<&str> = match (label.as_str(), selector.metric.as_str()) {
            ("role", "virtlens_cpu_seconds_total" | "vm_role:virtlens_cpu_seconds:rate5m") => {
                Role::ALL
                    .map(Role::name)
                    .into_iter()
                    .chain(["other"])
                    .collect()
            }
            ("role", _) => Role::ALL.map(Role::name).to_vec(),
            ("scope", _) => Scope::ALL.map(Scope::name).to_vec(),
            ("check", _) => Check::ALL.map(Check::name).to_vec(),
            ("kind", "virtlens_misplaced_vcpus") => {
                MismatchKind::ALL.map(MismatchKind::name).to_vec()
            }
            ("operation", _) => vec!["inflate", "deflate", "other"],
            _ => return Vec::new(),
        };
        let values = value.split('|').filter(|value| !value.starts_with('$'));
        let unknown = values.filter(|value| !closed.contains(value));
        unknown.map(|value| format!("{label}={value}")).collect()
    })
}

/// Also outside of whole queries.
#[test]
fn metrics_in_texts_are_exported() {
    let mut known: BTreeSet<String> = known().into_keys().collect();
    known.extend(families().map(|family| family.name.to_owned()));
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut texts: Vec<(String, String)> = documents()
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).expect("it is a text");
            (file.display().to_string(), text)
        })
        .collect();
    texts.extend(
        rules::alerts().map(|alert| (alert.name.to_owned(), alert.description(PodLabels::Kept))),
    );
    for (name, text) in texts {
        for word in text.split(|c| !is_part(c)) {
            let word = word.trim_end_matches(':');
            let is_metric = word.starts_with("virtlens_") || word.contains(":virtlens_");
            assert!(
                !is_metric || known.contains(word),
                "{name}: there is no {word}"
            );
        }
    }
}

#[test]
fn every_recording_rule_is_used() {
    let alerts = rules::alerts()
        .map(|alert| alert.expression(PodLabels::Kept) + &alert.description(PodLabels::Kept));
    let panels = DASHBOARDS.iter().flat_map(Dashboard::panels);
    let targets = panels.flat_map(|panel| panel.targets);
    let queries = targets.map(|target| target.query.to_owned());
    let rules = rules::recordings().map(|rule| rule.query.to_owned());
    let used: String = alerts.chain(queries).chain(rules).collect();
    for rule in rules::recordings() {
        assert!(used.contains(rule.name), "{} is not used", rule.name);
    }
}

#[test]
fn rules_follow_rules_of_their_group_that_they_use() {
    for (group, rules) in rules::GROUPS {
        let mut before = BTreeSet::new();
        for rule in *rules {
            for selector in promql::selectors(&rule.query(PodLabels::Kept)).expect("PromQL") {
                let name = selector.metric;
                assert!(
                    !name.contains(':') || before.contains(&name),
                    "{group}: {} uses {name}, which does not come before",
                    rule.name
                );
            }
            before.insert(rule.name.to_owned());
        }
    }
}

#[test]
fn dashboards_mark_alerts_with_their_own_variables() {
    for dashboard in DASHBOARDS {
        for labels in PodLabels::ALL {
            let json = dashboard.json(labels);
            let query = json["annotations"]["list"][0]["expr"].as_str();
            let query = query.expect("a query of alerts");
            let list = json["templating"]["list"].as_array().expect("a list");
            let known: Vec<&str> = list.iter().filter_map(|one| one["name"].as_str()).collect();
            let selectors = promql::selectors(query).expect("PromQL");
            let [selector] = selectors.as_slice() else {
                panic!("{query}")
            };
            assert_eq!(selector.metric, "ALERTS");
            for (_, _, value) in &selector.conditions {
                let unknown = value.strip_prefix('$').filter(|name| !known.contains(name));
                assert_eq!(unknown, None, "{}: {query}", dashboard.name);
            }
        }
    }
}

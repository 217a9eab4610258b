//! What users may rely on: of each alert its runbook and tests, of each panel
//! its unit and description.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use virtlens_deploy::dashboard::{Of, panels};
use virtlens_deploy::rules::{self, Alert};
use virtlens_deploy::tokens::PodLabels;
use virtlens_deploy::{DASHBOARDS, root};

/// Where the runbook of an alert is.
pub(crate) fn runbook(alert: &str) -> PathBuf {
    root().join(format!("docs/runbooks/{alert}.md"))
}

fn is_sentence(text: &str) -> bool {
    text.ends_with('.') && !text.contains('\n') && text.starts_with(|c: char| !c.is_whitespace())
}

#[test]
fn every_alert_has_runbook_with_its_query() {
    for alert in rules::alerts() {
        let text = fs::read_to_string(runbook(alert.name))
            .unwrap_or_else(|error| panic!("{}: {error}", alert.name));
        let query = format!("```promql\n{}\n```", alert.query(PodLabels::Kept));
        assert!(text.contains(&query), "{} has not:\n{query}", alert.name);
        assert!(text.starts_with(&format!("# {}\n", alert.name)));
        let headings: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        let expected = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"];
        assert_eq!(headings, expected, "{}", alert.name);
    }
    let names: BTreeSet<_> = rules::alerts()
        .map(|alert| format!("{}.md", alert.name))
        .collect();
    for file in fs::read_dir(root().join("docs/runbooks")).expect("a folder") {
        let name = file
            .expect("a file")
            .file_name()
            .into_string()
            .expect("text");
        assert!(names.contains(&name), "{name} is no alert's");
    }
}

#[test]
fn every_alert_has_summary_and_severity() {
    let mut names = BTreeSet::new();
    for alert in rules::alerts() {
        let Alert { name, .. } = alert;
        assert!(names.insert(name), "{name} is there twice");
        assert!(name.starts_with("Virtlens"), "{name}");
        assert!(is_sentence(alert.summary), "{name}: {}", alert.summary);
        assert!(
            is_sentence(alert.description),
            "{name}: {}",
            alert.description
        );
        assert!(!alert.hold.is_empty(), "{name}");
    }
}

/// One test in which it fires, and one in which it does not.
#[test]
fn every_alert_has_firing_and_silent_test() {
    let file = root().join("deploy/prometheus/tests.yaml");
    let text = fs::read_to_string(file).expect("it is there");
    let all: Value = serde_norway::from_str(&text).expect("YAML");
    let mut seen = BTreeSet::new();
    for test in all["tests"].as_array().expect("tests") {
        for alert in test["alert_rule_test"].as_array().into_iter().flatten() {
            let fires = alert["exp_alerts"]
                .as_array()
                .is_some_and(|list| !list.is_empty());
            let name = alert["alertname"].as_str().expect("a name").to_owned();
            seen.insert((name, fires));
        }
    }
    for alert in rules::alerts() {
        for fires in [true, false] {
            let wanted = (alert.name.to_owned(), fires);
            assert!(
                seen.contains(&wanted),
                "no test: {} fires: {fires}",
                alert.name
            );
        }
    }
}

#[test]
fn every_panel_has_description() {
    for dashboard in DASHBOARDS {
        for panel in dashboard.panels() {
            let name = format!("{} / {}", dashboard.name, panel.title);
            assert!(
                is_sentence(panel.description),
                "{name}: {}",
                panel.description
            );
            assert!(
                !panel.title.is_empty() && !panel.targets.is_empty(),
                "{name}"
            );
        }
        let json = dashboard.json(PodLabels::Kept);
        for panel in panels(&json) {
            let title = &panel["title"];
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
            assert!(unit.is_some_and(|unit| !unit.is_empty()), "{title}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            for target in panel["targets"].as_array().expect("targets") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            }
        }
    }
}

#[test]
fn dashboards_are_valid_for_grafana_and_sidecars() {
    let mut uids = BTreeSet::new();
    for dashboard in DASHBOARDS {
        let json = dashboard.json(PodLabels::Kept);
        let uid = dashboard.uid();
        assert!(uid.len() <= 40 && uids.insert(uid.clone()), "{uid}");
        assert_eq!(json["uid"], uid.as_str());
        assert_eq!(json["schemaVersion"], 39);
        assert!(is_sentence(dashboard.description), "{uid}");
        let names: Vec<_> = json["templating"]["list"]
            .as_array()
            .expect("variables")
            .iter()
            .map(|variable| variable["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(names[..2], ["datasource", "cluster"], "{uid}");
        let keeps_node = matches!(dashboard.of, Of::Vm | Of::Node);
        let link = &json["links"][0];
        assert_eq!(
            (&link["includeVars"], &link["keepTime"]),
            (&keeps_node.into(), &true.into())
        );
        assert_eq!(link["tags"], json["tags"], "{uid}");
        assert_no_overlap(&uid, json["panels"].as_array().expect("panels"));
    }
}

/// Two screens of 1080 lines: a line of Grafana's grid has 38 pixels with its gap, and the
/// page's head takes some 160.
const TWO_SCREENS: u64 = 48;

#[test]
fn pod_opens_with_two_screens_and_all_else_in_closed_rows() {
    let pod = DASHBOARDS.iter().find(|one| one.name == "pod");
    let json = pod.expect("alerts link to it").json(PodLabels::Kept);
    let shown = json["panels"].as_array().expect("panels");
    let end = |one: &Value| {
        let at = |key: &str| one["gridPos"][key].as_u64().expect("a number");
        at("y") + at("h")
    };
    let height = shown.iter().map(end).max().expect("it has panels");
    assert!(height <= TWO_SCREENS, "{height}");
    let ids: BTreeSet<u64> = panels(&json).filter_map(|one| one["id"].as_u64()).collect();
    assert_eq!(ids.len(), pod.map_or(0, |pod| pod.panels().count()));
}

#[test]
fn dashboards_for_perses_have_the_panels_and_variables_of_grafana() {
    for dashboard in DASHBOARDS {
        let (grafana, perses) = (
            dashboard.json(PodLabels::Kept),
            dashboard.perses(PodLabels::Kept),
        );
        let grids = perses["layouts"].as_array().expect("layouts").iter();
        let placed = grids.flat_map(|grid| grid["spec"]["items"].as_array().expect("items"));
        let shown: Vec<&Value> = placed
            .map(|item| {
                let path = item["content"]["$ref"].as_str().expect("a reference");
                let path = path.strip_prefix("#/spec").expect("of this dashboard");
                perses.pointer(path).expect("it is defined")
            })
            .collect();
        assert_eq!(
            perses["panels"].as_object().expect("panels").len(),
            shown.len()
        );
        let expected: Vec<&Value> = panels(&grafana).collect();
        assert_eq!(expected.len(), shown.len(), "{}", dashboard.name);
        for (panel, expected) in shown.iter().zip(expected) {
            let title = &expected["title"];
            assert_eq!(&panel["spec"]["display"]["name"], title);
            let is_heatmap = expected["type"] == "heatmap";
            let queries = panel["spec"]["queries"].as_array().expect("queries");
            let targets = expected["targets"].as_array().expect("targets");
            let count = targets.len() * if is_heatmap { 3 } else { 1 };
            assert_eq!(queries.len(), count, "{title}");
            for (number, query) in queries.iter().enumerate() {
                let text = &query["spec"]["plugin"]["spec"]["query"];
                let target = &targets[if is_heatmap { 0 } else { number }]["expr"];
                let [text, target] = [text, target].map(|one| one.as_str().expect("a query"));
                assert!(
                    text == target || is_heatmap && text.contains(target),
                    "{text}"
                );
            }
        }
        let names = |list: &Value, name: &str| -> Vec<String> {
            let list = list.as_array().expect("variables").iter();
            let names = list.map(|one| one.pointer(name).and_then(Value::as_str));
            names.map(|name| name.expect("a name").to_owned()).collect()
        };
        let mut variables = names(&grafana["templating"]["list"], "/name");
        // The project's default.
        assert_eq!(variables.remove(0), "datasource");
        assert_eq!(names(&perses["variables"], "/spec/name"), variables);
    }
}

fn assert_no_overlap(uid: &str, panels: &[Value]) {
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{uid}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        assert!(at("x") + at("w") <= 24, "{uid}: {}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{uid}: {} overlaps", panel["title"]);
            }
        }
    }
}

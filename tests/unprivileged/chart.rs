//! Deployment files: the chart rendered with several values, and the plain manifests
//! generated from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use virtlens_tests::golden::assert_golden;
use virtlens_tests::need;

use crate::examples::assert_agent_accepts;

/// The Kubernetes version to render for, independent of helm's default.
pub(crate) const KUBERNETES: &str = "1.36.3";

/// Additional values, `deploy/chart/tests/values/NAME.yaml`.
const VALUES: [&str; 4] = ["all-on", "kubelet", "none", "openshift"];

/// Long files with generators and tests of their own.
const GENERATED: [&str; 3] = ["dashboards.yaml", "perses.yaml", "prometheusrule.yaml"];

pub(crate) fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path)
}

fn values_file(name: &str) -> String {
    let file = deploy("chart/tests/values").join(format!("{name}.yaml"));
    file.display().to_string()
}

fn helm(args: &[&str]) -> Output {
    let mut command = Command::new("helm");
    command.args(args).args(["--kube-version", KUBERNETES]);
    command.output().expect("helm can be started")
}

/// Renders the chart with these flags, as (template, document).
pub(crate) fn render(flags: &[&str]) -> Vec<(String, String)> {
    let chart = deploy("chart/virtlens").display().to_string();
    let mut args = vec!["template", "virtlens", &chart, "--namespace", "virtlens"];
    args.extend(flags);
    let output = helm(&args);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("helm writes UTF-8");
    let documents = text.strip_prefix("---\n").expect("a document has a head");
    assert_agent_accepts(&format!("{flags:?}"), documents.split("\n---\n"));
    documents
        .split("\n---\n")
        .map(|document| {
            let (source, body) = document.split_once('\n').expect("a document has lines");
            let template = source.strip_prefix("# Source: virtlens/templates/");
            let template = template.unwrap_or_else(|| panic!("where from? {document}"));
            (template.to_owned(), body.trim_end().to_owned())
        })
        .collect()
}

fn join<'d>(documents: impl IntoIterator<Item = &'d str>) -> String {
    let mut text = String::new();
    for document in documents {
        text += "---\n";
        text += document;
        text += "\n";
    }
    text
}

pub(crate) fn parse(document: &str) -> Value {
    serde_norway::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
}

#[test]
fn chart_renders_to_golden() {
    if !need::all("chart_renders_to_golden", [need::helm()]) {
        return;
    }
    for name in ["default"].into_iter().chain(VALUES) {
        let file = values_file(name);
        let flags: &[&str] = if name == "default" {
            &[]
        } else {
            &["--values", &file]
        };
        let documents = render(flags);
        let reviewed = documents
            .iter()
            .filter(|(template, _)| !GENERATED.contains(&&**template))
            .map(|(_, body)| &**body);
        let golden = deploy("chart/tests/golden").join(format!("{name}.yaml"));
        assert_golden(golden, &join(reviewed));
    }
}

/// The plain manifests equal the chart, for users without helm.
#[test]
fn manifests_equal_rendered_chart() {
    if !need::all("manifests_equal_rendered_chart", [need::helm()]) {
        return;
    }
    let head = "# Rendered from deploy/chart/virtlens with its default values; to update:\n\
                # UPDATE_GOLDEN=1 cargo test -p virtlens-tests --test unprivileged chart\n";
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: virtlens\n  labels:\n    \
                     # The pods use the host's pid namespace.\n    \
                     pod-security.kubernetes.io/enforce: privileged";
    let documents = render(&["--skip-tests"]);
    let bodies = documents.iter().map(|(_, body)| &**body);
    let manifests = join([namespace].into_iter().chain(bodies));
    let of_helm = |line: &&str| line.contains("helm.sh/") || line.contains("managed-by: Helm");
    let lines = manifests.lines().filter(|line| !of_helm(line));
    let manifests = lines.collect::<Vec<_>>().join("\n") + "\n";
    assert_golden(
        deploy("manifests/virtlens.yaml"),
        &(head.to_owned() + &manifests),
    );
}

#[test]
fn helm_lint_passes() {
    if !need::all("helm_lint_passes", [need::helm()]) {
        return;
    }
    let chart = deploy("chart/virtlens").display().to_string();
    for file in VALUES.map(values_file) {
        let output = helm(&["lint", "--strict", "--quiet", "--values", &file, &chart]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{file}: {said}{output:?}");
    }
}

#[test]
fn unknown_chart_values_are_refused() {
    if !need::all("unknown_chart_values_are_refused", [need::helm()]) {
        return;
    }
    let chart = deploy("chart/virtlens").display().to_string();
    let renders = |set: &str| helm(&["template", &chart, "--set", set]).status.success();
    for right in [
        "web.port=9000",
        "web.tls=true,web.existingSecret=certificate",
        "serviceAccount.create=false,serviceAccount.name=virtlens",
        "serviceAccount.create=false,rbac.create=false",
        "config.thresholds.pool_threads=16,config.metrics=full",
        "prometheusRule.enabled=true,prometheusRule.runbooks=https://wiki.example.com/virtlens",
        "serviceMonitor.enabled=true,service.enabled=true",
        "record.enabled=false",
        "record.hostPath=/var/lib/virtlens,record.interval=1s",
    ] {
        assert!(renders(right), "{right}");
    }
    for wrong in [
        "web.prot=9000",
        "web.port=0",
        "metadata.source=magic",
        "config.minage=2s",
        "metrics.profile=most",
        "config.metrics=most",
        "config.thresholds.steal_ratio=1",
        "config.thresholds.vcpu_wait=0",
        "resources=1",
        // The probes would use TLS with an agent that does not.
        "web.tls=true",
        // The links of the alerts would lead nowhere.
        "prometheusRule.enabled=true",
        "prometheusRule.enabled=true,prometheusRule.runbooks=docs/runbooks",
        "prometheusRule.enabled=true,prometheusRule.runbooks=https://a,prometheusRule.grafana=b",
        // The rights would go to every pod of the namespace.
        "serviceAccount.create=false",
        // perses.dev/v1alpha1 has no such field.
        "dashboards.perses.enabled=true,dashboards.perses.instanceSelector.matchLabels.a=b",
        // It would select no Service.
        "serviceMonitor.enabled=true",
        "record.interval=500ms",
        "record.maxMiB=0",
        "record.hostPath=recordings",
        "record.hostPath=/",
    ] {
        assert!(!renders(wrong), "{wrong}");
    }
}

/// All files generated for Prometheus and Grafana are deployed, those for the labels of pods
/// that the values select.
#[test]
fn rules_and_dashboards_in_the_chart_are_all_deployed() {
    if !need::all(
        "rules_and_dashboards_in_the_chart_are_all_deployed",
        [need::helm()],
    ) {
        return;
    }
    for (set, folder) in [
        ("exportedLabels=false", "files"),
        ("exportedLabels=true", "files/exported"),
        ("podMonitor.honorLabels=false", "files/exported"),
    ] {
        let documents = render(&["--values", &values_file("all-on"), "--set", set]);
        let of = |wanted: &str| {
            let all = documents.iter().filter(|(template, _)| template == wanted);
            all.map(|(_, body)| parse(body)).collect::<Vec<_>>()
        };
        let dashboards: BTreeMap<String, String> = of("dashboards.yaml")
            .iter()
            .flat_map(|map| map["data"].as_object().expect("data").clone())
            .map(|(name, text)| (name, text.as_str().expect("a text").to_owned()))
            .collect();
        assert_eq!(dashboards, files(&format!("{folder}/dashboards")), "{set}");
        let queries = |groups: &[Value]| -> Vec<Value> {
            let groups = groups.iter().map(|group| group["rules"].clone());
            let rules = groups.flat_map(|rules| rules.as_array().expect("rules").clone());
            rules.map(|rule| rule["expr"].clone()).collect()
        };
        let groups = |file: &Value| file["groups"].as_array().expect("groups").clone();
        let deployed = of("prometheusrule.yaml");
        let deployed = deployed.iter().flat_map(|rule| groups(&rule["spec"]));
        let written = files(&format!("{folder}/rules"));
        let written = written.values().flat_map(|text| groups(&parse(text)));
        let [deployed, written] =
            [deployed.collect(), written.collect()].map(|groups: Vec<Value>| queries(&groups));
        assert_eq!(deployed, written, "{set}");
    }
}

/// Specifications of the `PersesDashboards` that the chart renders for a cluster that serves
/// this version.
fn perses(version: &str, set: &str) -> BTreeMap<String, Value> {
    let flags = [
        "--set",
        "dashboards.perses.enabled=true",
        "--api-versions",
        version,
        "--set",
        set,
    ];
    let documents = render(&flags);
    let documents = documents
        .iter()
        .filter(|(template, _)| template == "perses.yaml");
    documents
        .map(|(_, body)| {
            let mut one = parse(body);
            assert_eq!(one["apiVersion"], version);
            let name = one["metadata"]["name"].as_str().expect("a name");
            let name = name.strip_prefix("virtlens-").expect("of the release");
            (format!("{name}.json"), one["spec"].take())
        })
        .collect()
}

/// Helm writes 1.0 as 1.
fn with_floats(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) => return Value::from(number.as_f64()),
        Value::Array(list) => list
            .iter_mut()
            .for_each(|one| *one = with_floats(one.take())),
        Value::Object(map) => map
            .values_mut()
            .for_each(|one| *one = with_floats(one.take())),
        _ => {}
    }
    value
}

#[test]
fn dashboards_for_perses_are_deployed_in_the_version_of_the_cluster() {
    let test = "dashboards_for_perses_are_deployed_in_the_version_of_the_cluster";
    if !need::all(test, [need::helm()]) {
        return;
    }
    for (set, folder) in [
        ("exportedLabels=false", "files"),
        ("exportedLabels=true", "files/exported"),
    ] {
        let written = files(&format!("{folder}/perses"));
        let written: BTreeMap<String, Value> = written
            .into_iter()
            .map(|(name, text)| (name, parse(&text)))
            .collect();
        let older = perses("perses.dev/v1alpha1", set);
        let newer = perses("perses.dev/v1alpha2", set);
        let newer = newer.into_iter();
        let newer = newer.map(|(name, mut spec)| (name, spec["config"].take()));
        for deployed in [older, newer.collect()] {
            assert!(deployed.keys().eq(written.keys()), "{set}");
            for (name, spec) in &deployed {
                let is_equal = with_floats(spec.clone()) == with_floats(written[name].clone());
                assert!(is_equal, "{set} {name}: {spec}");
            }
        }
    }
}

/// Checks the URL of the values and the runbook file that is published there, and the URL of
/// the dashboard, which a chat message needs to be absolute.
#[test]
fn each_alert_of_the_chart_links_to_its_runbook_and_dashboard() {
    let test = "each_alert_of_the_chart_links_to_its_runbook_and_dashboard";
    if !need::all(test, [need::helm()]) {
        return;
    }
    let base = "https://wiki.example.com/virtlens";
    let grafana = "https://grafana.example.com";
    let set = format!("prometheusRule.enabled=true,prometheusRule.runbooks={base}/");
    for (with_grafana, begin) in [
        (
            format!("{set},prometheusRule.grafana={grafana}/"),
            Some(format!("{grafana}/d/virtlens-")),
        ),
        (set, None),
    ] {
        assert_links(&with_grafana, base, begin.as_deref());
    }
}

fn assert_links(set: &str, base: &str, dashboard: Option<&str>) {
    let documents = render(&["--set", set]);
    let rules = documents
        .iter()
        .filter(|(template, _)| template == "prometheusrule.yaml");
    let mut alerts = 0;
    for (_, body) in rules {
        let document = parse(body);
        let groups = document["spec"]["groups"].as_array().expect("groups");
        for rule in groups
            .iter()
            .flat_map(|group| group["rules"].as_array().expect("rules"))
        {
            let Some(alert) = rule["alert"].as_str() else {
                continue;
            };
            alerts += 1;
            let annotations = &rule["annotations"];
            let url = annotations["runbook_url"].as_str().expect("a URL");
            assert_eq!(url, format!("{base}/{alert}.md"));
            assert_eq!(annotations["runbook"], Value::Null, "{alert}");
            let url = annotations["dashboard_url"].as_str();
            assert_eq!(url.is_some(), dashboard.is_some(), "{alert}");
            let is_absolute = url
                .zip(dashboard)
                .is_none_or(|(url, begin)| url.starts_with(begin));
            assert!(is_absolute, "{alert}: {url:?}");
            let file = deploy("../docs/runbooks").join(format!("{alert}.md"));
            assert!(file.is_file(), "{}", file.display());
        }
    }
    assert!(alerts > 0, "there are alerts");
}

/// The files in a folder of the chart, without white space at their ends.
fn files(folder: &str) -> BTreeMap<String, String> {
    let folder = deploy("chart/virtlens").join(folder);
    let entries = fs::read_dir(folder).expect("it is a folder of the chart");
    let files = entries.map(|entry| entry.expect("it can be read"));
    files
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("it is a text");
            let name = entry.file_name().into_string().expect("UTF-8");
            (name, text.trim_end().to_owned())
        })
        .collect()
}

#[test]
fn chart_version_equals_program_version() {
    let chart = parse(&fs::read_to_string(deploy("chart/virtlens/Chart.yaml")).expect("a chart"));
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

//! The chart on a real API server: it passes strict validation, and the agent's account
//! has the rights that it needs and no others.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::NamedTempFile;
use virtlens_tests::{ApiServer, need};

use crate::schemas;

/// The Kubernetes version of `tests/cluster/tools`.
const KUBERNETES: &str = "1.36.3";
const NAMESPACE: &str = "virtlens";
/// All kinds that the chart creates.
const KINDS: [&str; 14] = [
    "clusterrole",
    "clusterrolebinding",
    "configmap",
    "daemonset",
    "namespace",
    "networkpolicy",
    "persesdashboard",
    "pod",
    "podmonitor",
    "prometheusrule",
    "securitycontextconstraints",
    "service",
    "serviceaccount",
    "servicemonitor",
];
const ACCOUNT: &str = "system:serviceaccount:virtlens:virtlens";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path)
}

fn text(path: PathBuf) -> String {
    path.into_os_string()
        .into_string()
        .expect("paths here are UTF-8")
}

fn helm(server: &ApiServer, args: &[&str]) -> Output {
    let mut command = Command::new("helm");
    command.args(args).args(["--namespace", NAMESPACE]);
    command.env("KUBECONFIG", server.kubeconfig());
    command.output().expect("helm can be started")
}

/// Runs helm with a verb and the release; fails with helm's error.
fn with_chart(server: &ApiServer, verb: &str, flags: &[&str]) {
    let chart = text(deploy("chart/virtlens"));
    let args = [&[verb, "virtlens", &chart], flags].concat();
    let output = helm(server, &args);
    assert!(output.status.success(), "{args:?}: {output:?}");
}

fn ready(test: &str) -> bool {
    need::all(test, [need::api_server(), need::helm()])
}

fn server() -> ApiServer {
    let server = ApiServer::start();
    server.ask(["create", "namespace", NAMESPACE]);
    server
}

#[test]
fn chart_is_installed_upgraded_and_removed_completely() {
    if !ready("chart_is_installed_upgraded_and_removed_completely") {
        return;
    }
    let server = server();
    let kinds = "daemonset,configmap,service,serviceaccount,networkpolicy,pod";
    let list = || {
        let namespaced = server.ask(["get", kinds, "-n", NAMESPACE, "-o", "name"]);
        let cluster = server.ask(["get", "clusterrole,clusterrolebinding", "-o", "name"]);
        let names = namespaced.lines().chain(cluster.lines()).map(str::to_owned);
        names.collect::<BTreeSet<_>>()
    };
    let before = list();
    with_chart(&server, "install", &[]);
    let installed = list();
    let added: BTreeSet<_> = installed.difference(&before).map(String::as_str).collect();
    let expected = [
        "clusterrole.rbac.authorization.k8s.io/virtlens",
        "clusterrolebinding.rbac.authorization.k8s.io/virtlens",
        "configmap/virtlens",
        "daemonset.apps/virtlens",
        "serviceaccount/virtlens",
    ];
    assert_eq!(added, BTreeSet::from(expected));
    let checksum = || {
        let path = "jsonpath={.spec.template.metadata.annotations.checksum/config}";
        server.ask(["get", "daemonset", "virtlens", "-n", NAMESPACE, "-o", path])
    };
    let first = checksum();
    // The role is not needed any more, and the agents have to restart.
    with_chart(
        &server,
        "upgrade",
        &["--set", "metadata.source=none,service.enabled=true"],
    );
    let upgraded = list();
    assert!(upgraded.contains("service/virtlens"));
    assert!(!upgraded.contains(expected[0]), "{upgraded:?}");
    assert_ne!(checksum(), first);
    let removed = helm(&server, &["uninstall", "virtlens"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(list(), before);
}

/// All variants, including the kinds of the Prometheus operator, of `OpenShift` and of Perses.
#[test]
fn rendered_objects_pass_strict_validation() {
    if !ready("rendered_objects_pass_strict_validation")
        || !need::all(
            "rendered_objects_pass_strict_validation",
            [crds().map(drop), need::kubeconform()],
        )
    {
        return;
    }
    let server = server();
    define_kinds(&server);
    let mut files = rendered();
    let dialects = ["exportedLabels=false", "exportedLabels=true"];
    let versions = ["perses.dev/v1alpha1", "perses.dev/v1alpha2"];
    let wholes: Vec<NamedTempFile> = dialects
        .iter()
        .zip(versions)
        .map(|(set, version)| with_rules_and_dashboards(&server, set, version))
        .collect();
    files.extend(wholes.iter().map(|file| file.path().to_owned()));
    let dry = |file: &str| {
        let args = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            file,
        ];
        server
            .kubectl(args)
            .output()
            .expect("kubectl can be started")
    };
    for file in &files {
        let output = dry(&text(file.clone()));
        assert!(output.status.success(), "{file:?}: {output:?}");
    }
    let folder = tempfile::tempdir().expect("there is room for a folder");
    schemas::write(&server, &KINDS, folder.path());
    let output = schemas::kubeconform(folder.path(), &files);
    assert!(output.status.success(), "{output:?}");
    // Negative control: both reject a misspelt field.
    let default = std::fs::read_to_string(deploy("chart/tests/golden/default.yaml"));
    let misspelt = default.expect("it was read above");
    let wrong = manifest(misspelt.replace("hostPID:", "hostPid:").as_bytes());
    let output = dry(&wrong.path().display().to_string());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && complaint.contains("hostPid"),
        "{output:?}"
    );
    let misspelt = [wrong.path().to_owned()];
    let output = schemas::kubeconform(folder.path(), &misspelt);
    let complaint = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && complaint.contains("hostPid"),
        "{output:?}"
    );
}

/// Renders the chart with everything enabled, for a cluster that serves a version of Perses'
/// kinds: the golden files have no rules and dashboards.
fn with_rules_and_dashboards(server: &ApiServer, set: &str, version: &str) -> NamedTempFile {
    let values = text(deploy("chart/tests/values/all-on.yaml"));
    let chart = text(deploy("chart/virtlens"));
    let flags = [
        "--kube-version",
        KUBERNETES,
        "--api-versions",
        version,
        "--values",
        &values,
        "--set",
        set,
    ];
    let template = [&["template", "virtlens", &chart], &flags[..]].concat();
    let output = helm(server, &template);
    assert!(output.status.success(), "{output:?}");
    manifest(&output.stdout)
}

/// A file with the extension of a manifest.
fn manifest(content: &[u8]) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile();
    let file = file.expect("there is room for a file");
    std::fs::write(file.path(), content).expect("a file can be written");
    file
}

/// The rendered charts of the tests that need no cluster.
fn rendered() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(deploy("chart/tests/golden")).expect("a folder");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("a file").path()).collect();
    files.push(deploy("manifests/virtlens.yaml"));
    assert!(files.len() > 4, "{files:?}");
    files
}

/// Directories of CRDs, from `VIRTLENS_CRDS`.
pub(crate) fn crds() -> Result<Vec<PathBuf>, need::Missing> {
    let list = env::var_os("VIRTLENS_CRDS").unwrap_or_default();
    need::that(
        "crds",
        !list.is_empty(),
        "VIRTLENS_CRDS names no directories",
    )?;
    Ok(env::split_paths(&list).collect())
}

pub(crate) fn define_kinds(server: &ApiServer) {
    for directory in crds().expect("the test asked") {
        let directory = text(directory);
        // They exceed the size of kubectl's last-applied annotation, hence server-side
        // apply.
        server.ask(["apply", "--server-side", "-f", &directory]);
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "-f",
            &directory,
        ];
        server.ask(wait);
    }
}

/// Rights of an account according to the API server, a line per resource.
fn rights(server: &ApiServer, account: &str) -> BTreeSet<String> {
    let list = server.ask(["auth", "can-i", "--list", "--no-headers", "--as", account]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    list.lines().map(words).collect()
}

#[test]
fn service_account_has_exactly_the_required_rights() {
    if !ready("service_account_has_exactly_the_required_rights") {
        return;
    }
    let server = server();
    // An account without any bindings.
    let nobody = rights(&server, "system:serviceaccount:virtlens:nobody");
    with_chart(&server, "install", &[]);
    for (values, expected) in [
        ("metadata.source=apiserver", vec!["pods [] [] [list watch]"]),
        ("metadata.source=kubelet", vec!["nodes/pods [] [] [get]"]),
        ("metadata.source=none", vec![]),
        (
            "metadata.source=none,web.auth=kubernetes",
            vec![
                "subjectaccessreviews.authorization.k8s.io [] [] [create]",
                "tokenreviews.authentication.k8s.io [] [] [create]",
            ],
        ),
    ] {
        with_chart(&server, "upgrade", &["--set", values]);
        let rights = rights(&server, ACCOUNT);
        let more: Vec<_> = rights.difference(&nobody).map(String::as_str).collect();
        assert_eq!(more, expected, "{values}");
    }
}

/// The same rights, used with the token that a pod gets.
#[test]
fn bound_token_lists_pods_and_nothing_else() {
    if !ready("bound_token_lists_pods_and_nothing_else") {
        return;
    }
    let server = server();
    with_chart(&server, "install", &[]);
    let token = server.ask(["create", "token", "virtlens", "-n", NAMESPACE]);
    let may = |args: &[&str]| {
        let args = args.iter().copied().chain(["--token", token.trim()]);
        let output = server
            .kubectl(args)
            .output()
            .expect("kubectl can be started");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() || complaint.to_lowercase().contains("forbidden"),
            "{complaint}"
        );
        output.status.success()
    };
    assert!(may(&["get", "pods", "--all-namespaces"]));
    let watch = "/api/v1/pods?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName%3Da";
    assert!(may(&["get", "--raw", watch]));
    for refused in [
        "/api/v1/secrets",
        "/api/v1/configmaps",
        "/api/v1/nodes",
        "/api/v1/nodes/a/proxy/pods",
        "/api/v1/namespaces/virtlens/pods/a",
        "/api/v1/namespaces/virtlens/pods/a/log",
        "/apis/apps/v1/daemonsets",
        "/metrics",
    ] {
        assert!(!may(&["get", "--raw", refused]), "{refused}");
    }
    for verb in [
        &["delete", "--raw", "/api/v1/namespaces/virtlens/pods/a"][..],
        &["run", "a", "--image=a", "-n", NAMESPACE],
        &["create", "token", "virtlens", "-n", NAMESPACE],
    ] {
        assert!(!may(verb), "{verb:?}");
    }
}

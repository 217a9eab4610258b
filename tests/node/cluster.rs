//! A cluster of one node, with the chart installed and two pods that run VMs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;
use virtlens_tests::{ControlPlane, scraped};

use crate::machine::{self, Machine};
use crate::network;

/// Namespace of the chart.
const NAMESPACE: &str = "virtlens";

/// Selects the agent's pods.
const AGENTS: &str = "app.kubernetes.io/name=virtlens";

/// A cluster whose pods all run.
pub(crate) struct Cluster {
    _machine: Machine,
    plane: ControlPlane,
    _dir: TempDir,
}

impl Cluster {
    /// Starts everything and waits until the node, the agent and the VMs are ready.
    pub(crate) fn start() -> Self {
        network::enter();
        let plane = ControlPlane::start(network::HOST, machine::NAME);
        // The machine has a private /tmp, and sees the build's directory.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let dir = dir.expect("there is room for a folder");
        plane.write_node_files(dir.path());
        let machine = Machine::start(
            dir.path(),
            &[image("VIRTLENS_IMAGE"), image("VIRTLENS_POD_IMAGE")],
        );
        let cluster = Self {
            _machine: machine,
            plane,
            _dir: dir,
        };
        let node = format!("node/{}", machine::NAME);
        cluster.ask(&format!("wait --for=create {node} --timeout=300s"));
        cluster.ask(&format!("wait --for=condition=Ready {node} --timeout=120s"));
        cluster.install();
        cluster.ask(&format!(
            "apply --filename {}",
            checkout("tests/node/pods.yaml")
        ));
        cluster.await_rollout();
        cluster.ask(
            "wait --for=condition=Ready --namespace tenant pod/capped pod/idle --timeout=120s",
        );
        cluster
    }

    /// Runs kubectl with these words and returns its output; panics with its error.
    pub(crate) fn ask(&self, line: &str) -> String {
        let output = self.run("kubectl", line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "kubectl {line}: {error}\n{}",
            machine::console()
        );
        String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
    }

    /// Runs a client of the API with these words, as the cluster's administrator.
    pub(crate) fn run(&self, program: &str, line: &str) -> Output {
        let mut command = self.plane.server().client(program);
        let output = command.args(line.split(' ')).output();
        output.unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// The environment of a client of the API.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let kubeconfig = self.plane.server().kubeconfig();
        vec![("KUBECONFIG", kubeconfig.display().to_string())]
    }

    /// Name of the agent's pod.
    pub(crate) fn agent(&self) -> String {
        self.ask(&format!(
            "get pods --namespace {NAMESPACE} --output jsonpath={{.items[*].metadata.name}}"
        ))
    }

    /// The agent's metrics, through the API server.
    pub(crate) fn scrape(&self) -> String {
        let agent = self.agent();
        self.ask(&format!(
            "get --raw /api/v1/namespaces/{NAMESPACE}/pods/{agent}:9877/proxy/metrics"
        ))
    }

    /// The counters of VMs in the agent's metrics.
    pub(crate) fn counters(&self) -> scraped::Counters {
        scraped::counters_in(&self.scrape())
    }

    /// Replaces the agent's pod, and waits for the next one.
    pub(crate) fn restart_agent(&self) {
        self.ask(&format!(
            "rollout restart --namespace {NAMESPACE} daemonset/virtlens"
        ));
        self.await_rollout();
    }

    /// Removes the agent from the node, as if the node were not selected.
    pub(crate) fn remove_agent(&self) {
        self.select(r#"{"no":"node"}"#);
        self.ask(&format!(
            "wait --for=delete --namespace {NAMESPACE} pod --selector {AGENTS} --timeout=120s"
        ));
    }

    /// Undoes [`Self::remove_agent`].
    pub(crate) fn return_agent(&self) {
        self.select(r#"{"no":null}"#);
        self.await_rollout();
    }

    /// Sets labels of the nodes on which the agent runs.
    fn select(&self, labels: &str) {
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"nodeSelector":{labels}}}}}}}}}"#);
        self.ask(&format!(
            "patch daemonset/virtlens --namespace {NAMESPACE} --patch {patch}"
        ));
    }

    /// Runs `virtlens` in the agent's container.
    pub(crate) fn exec(&self, line: &str) -> Output {
        let pod = "daemonset/virtlens";
        self.run(
            "kubectl",
            &format!("exec --namespace {NAMESPACE} {pod} -- virtlens {line}"),
        )
    }

    /// Installs the chart with its default values. The image's name and tag are the
    /// defaults, too.
    fn install(&self) {
        let chart = checkout("deploy/chart/virtlens");
        let line = format!("install virtlens {chart} --namespace {NAMESPACE} --create-namespace");
        let output = self.run("helm", &line);
        assert!(output.status.success(), "helm {line}: {output:?}");
    }

    fn await_rollout(&self) {
        self.ask(&format!(
            "rollout status --namespace {NAMESPACE} daemonset/virtlens --timeout=180s"
        ));
    }
}

/// The image's archive that the environment names.
fn image(variable: &str) -> PathBuf {
    let path = PathBuf::from(env::var_os(variable).unwrap_or_default());
    assert!(
        path.is_file(),
        "{variable} names no archive: run `make test-node`"
    );
    path
}

fn checkout(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(path).display().to_string()
}

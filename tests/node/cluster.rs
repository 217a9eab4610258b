//! A cluster of two nodes, with the chart installed and pods that run VMs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;
use virtlens_tests::{ControlPlane, scraped};

use crate::machine::{self, Machine, NODES};
use crate::network::{self, LINKS};

/// Namespace of the chart.
const NAMESPACE: &str = "virtlens";

/// Selects the agent's pods.
const AGENTS: &str = "app.kubernetes.io/name=virtlens";

/// A cluster whose pods all run.
pub(crate) struct Cluster {
    _machines: Vec<Machine>,
    plane: ControlPlane,
    _dirs: Vec<TempDir>,
}

impl Cluster {
    /// Starts everything and waits until the nodes, their agents and the VMs are ready.
    pub(crate) fn start() -> Self {
        network::enter();
        let plane = ControlPlane::start(network::HOST, &NODES);
        let images = [image("VIRTLENS_IMAGE"), image("VIRTLENS_POD_IMAGE")];
        let (mut machines, mut dirs) = (Vec::new(), Vec::new());
        for (node, link) in NODES.into_iter().zip(&LINKS) {
            // The machine has a private /tmp, and sees the build's directory.
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
            let dir = dir.expect("there is room for a folder");
            plane.write_node_files(node, dir.path());
            machines.push(Machine::start(node, link, dir.path(), &images));
            dirs.push(dir);
        }
        let cluster = Self {
            _machines: machines,
            plane,
            _dirs: dirs,
        };
        for node in NODES {
            cluster.ask(&format!("wait --for=create node/{node} --timeout=400s"));
            cluster.ask(&format!(
                "wait --for=condition=Ready node/{node} --timeout=180s"
            ));
        }
        cluster.install();
        cluster.ask(&format!(
            "apply --filename {}",
            checkout("tests/node/pods.yaml")
        ));
        cluster.await_rollout();
        cluster.ask("wait --for=condition=Ready --namespace tenant pod --all --timeout=180s");
        cluster
    }

    /// Runs kubectl with these words and returns its output; panics with its error.
    pub(crate) fn ask(&self, line: &str) -> String {
        let output = self.run("kubectl", line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "kubectl {line}: {error}\n{}",
            machine::consoles()
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

    /// Name of the pod of the first node's agent.
    pub(crate) fn agent(&self) -> String {
        let node = machine::NAME;
        self.ask(&format!(
            "get pods --namespace {NAMESPACE} --field-selector spec.nodeName={node} --output \
             jsonpath={{.items[*].metadata.name}}"
        ))
    }

    /// The metrics of the first node's agent, through the API server.
    pub(crate) fn scrape(&self) -> String {
        let agent = self.agent();
        self.ask(&format!(
            "get --raw /api/v1/namespaces/{NAMESPACE}/pods/{agent}:9877/proxy/metrics"
        ))
    }

    /// The counters of VMs in these metrics.
    pub(crate) fn counters(&self) -> scraped::Counters {
        scraped::counters_in(&self.scrape())
    }

    /// Replaces the agents' pods, and waits for the next ones.
    pub(crate) fn restart_agent(&self) {
        self.ask(&format!(
            "rollout restart --namespace {NAMESPACE} daemonset/virtlens"
        ));
        self.await_rollout();
    }

    /// Removes the agents from all nodes, as if they were not selected.
    pub(crate) fn remove_agents(&self) {
        self.select(r#"{"no":"node"}"#);
        self.ask(&format!(
            "wait --for=delete --namespace {NAMESPACE} pod --selector {AGENTS} --timeout=120s"
        ));
    }

    /// Removes the agent from the second node, as if that were not selected.
    pub(crate) fn remove_second_agent(&self) {
        let name = machine::NAME;
        self.select(&format!(r#"{{"kubernetes.io/hostname":"{name}"}}"#));
        self.await_rollout();
        let second = machine::SECOND;
        self.ask(&format!(
            "wait --for=delete --namespace {NAMESPACE} pod --selector {AGENTS} --field-selector \
             spec.nodeName={second} --timeout=120s"
        ));
    }

    /// Undoes [`Self::remove_agents`] and [`Self::remove_second_agent`].
    pub(crate) fn return_agents(&self) {
        self.select(r#"{"no":null,"kubernetes.io/hostname":null}"#);
        self.await_rollout();
    }

    /// Sends a signal to the agent of the first node.
    pub(crate) fn signal_agent(&self, number: i32) {
        self.ask(&format!(
            "exec --namespace tenant signals -- /signal {number} virtlens"
        ));
    }

    /// Authorizes requests to the agents by reviews of the API server.
    pub(crate) fn authorize(&self) {
        self.helm("upgrade", "--set web.auth=kubernetes");
        self.await_rollout();
    }

    /// Sets labels of the nodes on which the agent runs.
    fn select(&self, labels: &str) {
        let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"nodeSelector":{labels}}}}}}}}}"#);
        self.ask(&format!(
            "patch daemonset/virtlens --namespace {NAMESPACE} --patch {patch}"
        ));
    }

    /// Runs `virtlens` in the container of the first node's agent.
    pub(crate) fn exec(&self, line: &str) -> Output {
        let pod = self.agent();
        self.run(
            "kubectl",
            &format!("exec --namespace {NAMESPACE} {pod} -- virtlens {line}"),
        )
    }

    /// Installs the chart with its default values. The image's name and tag are the
    /// defaults, too.
    fn install(&self) {
        self.helm("install", "--create-namespace");
    }

    fn helm(&self, verb: &str, flags: &str) {
        let chart = checkout("deploy/chart/virtlens");
        let line = format!("{verb} virtlens {chart} --namespace {NAMESPACE} {flags}");
        let output = self.run("helm", &line);
        assert!(output.status.success(), "helm {line}: {output:?}");
    }

    fn await_rollout(&self) {
        self.ask(&format!(
            "rollout status --namespace {NAMESPACE} daemonset/virtlens --timeout=300s"
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

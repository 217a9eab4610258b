//! A real Prometheus (Debian's) that scrapes an agent and evaluates rules.

use std::fmt::Write as _;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use virtlens_deploy::tokens::PodLabels;

use crate::{eventually, http};

/// The program, found in `PATH`.
pub(crate) const PROGRAM: &str = "prometheus";

/// Name of its configuration.
const CONFIG: &str = "prometheus.yml";

/// A running Prometheus; killed on drop.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes `agent` every second as the job `virtlens`, and
    /// waits until it is ready. `rules` are rule files.
    pub fn scrape(agent: &str, rules: &[&Path]) -> Self {
        Self::scrape_as(PodLabels::Kept, agent, rules)
    }

    /// The same with these names for the labels of pods.
    pub fn scrape_as(labels: PodLabels, agent: &str, rules: &[&Path]) -> Self {
        Self::start(&config(labels, agent, rules), &[])
    }

    /// Starts a Prometheus with the text of its configuration and further arguments, and
    /// waits until it is ready.
    pub fn start(config: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let data = folder.path().join("data");
        Self::start_in(folder, &data, config, arguments)
    }

    /// Starts a Prometheus that scrapes nothing on these blocks, and waits until it is ready.
    /// It does not remove them, whatever their age.
    pub fn on_blocks(blocks: &Path) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let retention = ["--storage.tsdb.retention.time=100y"];
        Self::start_in(folder, blocks, "scrape_configs: []\n", &retention)
    }

    fn start_in(folder: TempDir, data: &Path, config: &str, arguments: &[&str]) -> Self {
        let file = folder.path().join(CONFIG);
        std::fs::write(&file, config).expect("it can be written");
        let log = File::create(folder.path().join("log")).expect("it can be made");
        let address = http::free_address();
        let child = Command::new(PROGRAM)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus is in PATH");
        let mut prometheus = Self {
            child,
            address,
            folder,
        };
        eventually("Prometheus to be ready", || {
            if let Some(status) = prometheus.child.try_wait().expect("it is our child") {
                panic!("Prometheus ended ({status}): {}", prometheus.log());
            }
            let answer = prometheus.ask("GET", "/-/ready", &[]).ok()?;
            answer.contains(" 200 ").then_some(())
        });
        prometheus
    }

    /// Replaces the configuration, and waits until it is in use.
    #[track_caller]
    pub fn reload(&self, config: &str) {
        let loads = || {
            self.log()
                .matches("Completed loading of configuration")
                .count()
        };
        let before = loads();
        std::fs::write(self.folder.path().join(CONFIG), config).expect("it can be written");
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
        eventually("Prometheus to load its configuration", || {
            (loads() > before).then_some(())
        });
    }

    /// The value of a metric that Prometheus exposes about itself; `series` is its name with its
    /// labels, as in the text format.
    #[track_caller]
    pub fn self_metric(&self, series: &str) -> f64 {
        let answer = self
            .ask("GET", "/metrics", &[])
            .expect("Prometheus answers");
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("Prometheus has no {series}"))
    }

    /// Writes the samples that are not in a block yet to a block, and returns its folder. Needs
    /// `--web.enable-admin-api`.
    #[track_caller]
    pub fn snapshot(&self) -> PathBuf {
        let name = self.data_of("POST", "/api/v1/admin/tsdb/snapshot", &[]);
        let name = name["name"].as_str().expect("the folder's name");
        self.folder.path().join("data/snapshots").join(name)
    }

    /// The API's answer for a path and parameters; panics with its error.
    #[track_caller]
    pub fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        self.data_of("GET", &format!("/api/v1/{path}"), parameters)
    }

    #[track_caller]
    fn data_of(&self, method: &str, path: &str, parameters: &[(&str, &str)]) -> Value {
        let answer = self
            .ask(method, path, parameters)
            .expect("Prometheus answers");
        let body = answer.split_once("\r\n\r\n").expect("a whole answer").1;
        let mut answer: Value = serde_json::from_str(body)
            .unwrap_or_else(|error| panic!("{path} {parameters:?}: {error}: {body}"));
        assert_eq!(
            answer["status"], "success",
            "{path} {parameters:?}: {answer}"
        );
        answer["data"].take()
    }

    /// Number of series that a query returns now.
    #[track_caller]
    pub fn series(&self, query: &str) -> usize {
        let answer = self.api("query", &[("query", query)]);
        let result = answer["result"].as_array();
        result.map_or(0, Vec::len)
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> std::io::Result<String> {
        let mut target = path.to_owned();
        for (index, (name, value)) in parameters.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(target, "{mark}{name}={}", escaped(value))
                .expect("writing to a String cannot fail");
        }
        http::ask(self.address, method, &target, "")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn config(labels: PodLabels, agent: &str, rules: &[&Path]) -> String {
    let mut text =
        "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files:\n".to_owned();
    for file in rules {
        writeln!(text, "- {}", file.display()).expect("writing to a String cannot fail");
    }
    // A Prometheus operator sets `namespace` and `pod` of a target to the agent's own.
    let honors = labels == PodLabels::Kept;
    text + &format!(
        "scrape_configs:\n- job_name: virtlens\n  honor_labels: {honors}\n  \
         static_configs:\n  - targets: ['{agent}']\n    \
         labels: {{ namespace: agents, pod: virtlens-x7k2p }}\n"
    )
}

/// Percent-encodes a text for a URL's query.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    out
}

//! Alertmanager of Debian.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{eventually, http};

/// The program, found in `PATH`.
const PROGRAM: &str = "prometheus-alertmanager";

/// Debian's program reads its templates from /usr/share, but the package is only unpacked.
/// `$0` is the program; `exec` keeps its process id.
const WITH_TEMPLATES: &str = "set -e
    package=$(dirname \"$(command -v \"$0\")\")/../share/prometheus/alertmanager
    templates=$(mktemp -d)
    cp \"$package\"/*.tmpl \"$templates\"
    mount -t tmpfs none /usr/share
    mkdir -p /usr/share/prometheus/alertmanager
    cp \"$templates\"/*.tmpl /usr/share/prometheus/alertmanager
    rm -r \"$templates\"
    exec \"$0\" \"$@\"";

/// A running Alertmanager; killed on drop.
#[derive(Debug)]
pub struct Alertmanager {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Alertmanager {
    /// Starts it with a configuration, and waits until it is ready. Needs
    /// `need::alertmanager` and `need::mount_namespace`.
    pub fn start(config: &Path) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let log = File::create(folder.path().join("log")).expect("it can be made");
        let address = http::free_address();
        let child = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", WITH_TEMPLATES])
            .arg(PROGRAM)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", folder.path().display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--cluster.listen-address=")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("alertmanager is in PATH");
        let alertmanager = Self {
            child,
            address,
            _folder: folder,
        };
        eventually("Alertmanager to be ready", || {
            let answer = alertmanager.ask("GET", "/-/ready", "").ok()?;
            answer.contains(" 200 ").then_some(())
        });
        alertmanager
    }

    /// The whole answer to a request.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        http::ask(self.address, method, path, body)
    }

    /// Fires alerts.
    pub fn fire(&self, alerts: &[Value]) {
        let body = Value::from(alerts.to_vec()).to_string();
        let answer = self.ask("POST", "/api/v2/alerts", &body);
        let answer = answer.expect("Alertmanager answers");
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

//! A handle on a real etcd and a real kube-apiserver, without controllers.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Launch, eventually};

/// etcd, found in `PATH`.
pub(crate) const ETCD: &str = "etcd";
/// The API server, found in `PATH`.
pub(crate) const KUBE_APISERVER: &str = "kube-apiserver";
/// The client, found in `PATH`.
pub(crate) const KUBECTL: &str = "kubectl";

/// Bearer token of the administrator.
const ADMIN_TOKEN: &str = "admin-token";

/// A running API server with a private etcd, on free ports of 127.0.0.1. Both are killed
/// on drop and when the thread that started them exits.
///
/// There is no scheduler, kubelet or garbage collector: a pod needs a `nodeName`, gets a
/// status only by `--subresource=status`, and is deleted with `--grace-period=0 --force`.
/// Pods get no token mounted, and need no existing service account.
#[derive(Debug)]
pub struct ApiServer {
    dir: TempDir,
    port: u16,
    etcd_port: u16,
    etcd: Child,
    /// `None` while it is stopped.
    server: Option<Child>,
}

impl ApiServer {
    /// Starts both and waits until the server is ready.
    pub fn start() -> Self {
        Self::start_with(Path::new(ETCD))
    }

    /// Like [`start`](Self::start), with another etcd.
    pub fn start_with(etcd: &Path) -> Self {
        let dir = tempfile::tempdir().expect("there is room for a folder");
        let [port, etcd_port, peer_port] = free_ports();
        let token = format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n");
        fs::write(dir.path().join("tokens.csv"), token).expect("a file can be written");
        make_key(&dir.path().join("accounts.key"));
        let etcd = start_etcd(etcd, dir.path(), etcd_port, peer_port);
        let mut server = Self {
            dir,
            port,
            etcd_port,
            etcd,
            server: None,
        };
        server.write_kubeconfig();
        server.resume();
        server
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The server's self-signed certificate, PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("pki/apiserver.crt")
    }

    /// Bearer token of the administrator.
    pub fn admin_token(&self) -> &'static str {
        ADMIN_TOKEN
    }

    /// URL of its etcd, without TLS.
    pub fn etcd_url(&self) -> String {
        loopback(self.etcd_port)
    }

    /// A kubeconfig with the administrator's token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Kills the server: connections break, and its port refuses new ones. Its data and
    /// etcd remain.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            end(&mut server);
        }
    }

    /// Restarts the killed server on its port with its data, and waits until it is ready.
    pub fn resume(&mut self) {
        assert!(self.server.is_none(), "the API server is there already");
        let started = self.launch(
            KUBE_APISERVER,
            Launch::new(KUBE_APISERVER).args(self.flags()),
        );
        let server = self.server.insert(started);
        let (pid, log) = (server.id(), self.dir.path().join("kube-apiserver.log"));
        eventually("the API server is ready", || {
            let server = self.server.as_mut().expect("it was started above");
            if let Some(status) = server.try_wait().expect("a child can be waited for") {
                let log = fs::read_to_string(&log).unwrap_or_default();
                panic!("kube-apiserver {pid} ended ({status}): {log}");
            }
            let mut ask = self.kubectl(["get", "--raw", "/readyz"]);
            let answer = ask.output().expect("kubectl can be started");
            answer.status.success().then_some(())
        });
    }

    /// A kubectl command with the administrator's token.
    pub fn kubectl<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(KUBECTL);
        command
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.dir.path().join("cache"))
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns its output; panics with its error.
    pub fn ask<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let mut command = self.kubectl(args);
        let output = command.output().expect("kubectl can be started");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {complaint}");
        String::from_utf8(output.stdout).expect("kubectl writes UTF-8")
    }

    fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", file("pki")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("accounts.key")),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".into(),
            // This plugin rejects pods whose service account does not exist.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--endpoint-reconciler-type=none".into(),
            "--shutdown-delay-duration=0s".into(),
        ]
    }

    fn launch(&self, name: &str, launch: Launch) -> Child {
        start(launch, &self.dir.path().join(format!("{name}.log")))
    }

    fn write_kubeconfig(&self) {
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": self.url(), "certificate-authority": self.ca_file(),
            }}],
            "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        });
        fs::write(self.kubeconfig(), config.to_string()).expect("a file can be written");
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
        end(&mut self.etcd);
    }
}

/// Three ports that were free a moment ago.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    listeners.map(|one| one.local_addr().expect("it has an address").port())
}

fn loopback(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Creates the key that signs service account tokens.
fn make_key(path: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["genrsa", "-out"]).arg(path).arg("2048");
    let output = openssl.output().expect("openssl is in PATH");
    assert!(output.status.success(), "{openssl:?}: {output:?}");
}

fn start_etcd(program: &Path, dir: &Path, port: u16, peer_port: u16) -> Child {
    let (client, peer) = (loopback(port), loopback(peer_port));
    let launch = Launch::new(program)
        .arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .arg("--unsafe-no-fsync");
    start(launch, &dir.join("etcd.log"))
}

/// Starts a program with its output in a file.
fn start(launch: Launch, log: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log);
    let log = log.expect("a file can be made");
    let mut launch = launch.die_with_thread();
    let out = log.try_clone().expect("a descriptor is free");
    launch.command.stdin(Stdio::null()).stdout(out).stderr(log);
    launch.spawn()
}

/// Kills a program: its port is free when this returns.
fn end(child: &mut Child) {
    // The process may have ended already.
    drop(child.kill());
    drop(child.wait());
}

//! A handle on a real etcd and a real kube-apiserver, without controllers.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
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

/// File of the key that signs tokens of service accounts.
const ACCOUNTS_KEY: &str = "accounts.key";

/// Bearer token of the administrator.
const ADMIN_TOKEN: &str = "admin-token";

/// Port of the service `kubernetes`, at which pods expect a server with nodes.
const SERVICE_PORT: u16 = 443;

/// A running API server with a private etcd, on free ports of 127.0.0.1. Both are killed
/// on drop and when the thread that started them exits.
///
/// A [`ControlPlane`](crate::ControlPlane) adds a scheduler, controllers and kubelets. A server
/// that runs alone assigns no node to a pod, which needs a `nodeName`; a pod gets a status only
/// by `--subresource=status`, and is deleted with `--grace-period=0 --force`. Pods get no token
/// mounted, and need no existing service account.
#[derive(Debug)]
pub struct ApiServer {
    dir: TempDir,
    address: Ipv4Addr,
    port: u16,
    /// Flags in addition to those of every server.
    flags: Vec<String>,
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
        let [port] = free_ports();
        let flags = [
            "--bind-address=127.0.0.1",
            "--authorization-mode=RBAC",
            // This plugin rejects pods whose service account does not exist.
            "--disable-admission-plugins=ServiceAccount",
        ];
        let flags = flags.map(str::to_owned).into();
        Self::start_in(new_dir(), etcd, (Ipv4Addr::LOCALHOST, port), flags, "")
    }

    /// Starts both for real nodes, which connect to `address`. Further `tokens` are lines of
    /// the file for `--token-auth-file`.
    pub(crate) fn start_for_nodes(
        dir: TempDir,
        address: Ipv4Addr,
        flags: Vec<String>,
        tokens: &str,
    ) -> Self {
        let own = [
            format!("--advertise-address={address}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
        ];
        let flags = own.into_iter().chain(flags).collect();
        Self::start_in(dir, Path::new(ETCD), (address, SERVICE_PORT), flags, tokens)
    }

    fn start_in(
        dir: TempDir,
        etcd: &Path,
        (address, port): (Ipv4Addr, u16),
        flags: Vec<String>,
        tokens: &str,
    ) -> Self {
        let [etcd_port, peer_port] = free_ports();
        let tokens = format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n{tokens}");
        fs::write(dir.path().join("tokens.csv"), tokens).expect("a file can be written");
        make_key(&dir.path().join(ACCOUNTS_KEY));
        let etcd = start_etcd(etcd, dir.path(), etcd_port, peer_port);
        let mut server = Self {
            dir,
            address,
            port,
            flags,
            etcd_port,
            etcd,
            server: None,
        };
        let config = server.kubeconfig_of(ADMIN_TOKEN, &server.ca_file());
        fs::write(server.kubeconfig(), config).expect("a file can be written");
        server.resume();
        server
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// The server's self-signed certificate, PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("pki/apiserver.crt")
    }

    /// The key that signs tokens of service accounts.
    pub(crate) fn accounts_key(&self) -> PathBuf {
        self.dir.path().join(ACCOUNTS_KEY)
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
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
        let log = self.dir.path().join("kube-apiserver.log");
        let launch = Launch::new(KUBE_APISERVER).args(self.flags());
        let server = self.server.insert(launch.spawn_logged(&log));
        let pid = server.id();
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

    /// A client of the API, such as kubectl, as the administrator.
    pub fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.dir.path().join("cache"))
            .stdin(Stdio::null());
        command
    }

    /// A kubectl command with the administrator's token.
    pub fn kubectl<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.client(KUBECTL);
        command.args(args);
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
        let accounts_key = self.accounts_key();
        let accounts_key = accounts_key.display();
        let flags = [
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", file("pki")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={accounts_key}"),
            format!("--service-account-signing-key-file={accounts_key}"),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--endpoint-reconciler-type=none".into(),
            "--shutdown-delay-duration=0s".into(),
        ];
        flags
            .into_iter()
            .chain(self.flags.iter().cloned())
            .collect()
    }

    /// A kubeconfig with this bearer token.
    pub(crate) fn kubeconfig_of(&self, token: &str, ca_file: &Path) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": self.url(), "certificate-authority": ca_file,
            }}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        })
        .to_string()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.kill();
        end(&mut self.etcd);
    }
}

/// A directory for all files of a server.
pub(crate) fn new_dir() -> TempDir {
    tempfile::tempdir().expect("there is room for a folder")
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
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
    launch.spawn_logged(&dir.join("etcd.log"))
}

/// Kills a program: its port is free when this returns.
pub(crate) fn end(child: &mut Child) {
    // The process may have ended already.
    drop(child.kill());
    drop(child.wait());
}

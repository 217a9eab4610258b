//! An API server for real nodes, with the controllers that they need.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command};

use crate::api_server::{end, new_dir};
use crate::{ApiServer, Launch};

/// Creates the objects that pods need, and the pods of a `DaemonSet`; found in `PATH`.
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// Assigns pods to nodes; found in `PATH`.
pub(crate) const SCHEDULER: &str = "kube-scheduler";

/// Bearer token of a node.
fn token_of(node: &str) -> String {
    format!("token-of-{node}")
}

/// Commands of openssl that create a certificate authority and a certificate by which a
/// kubelet recognizes the API server.
const CERTIFICATES: [&str; 3] = [
    "req -x509 -newkey rsa:2048 -nodes -keyout client-ca.key -out client-ca.crt \
     -days 2 -subj /CN=client-ca",
    "req -newkey rsa:2048 -nodes -keyout client.key -out client.csr \
     -subj /O=system:masters/CN=kube-apiserver",
    "x509 -req -in client.csr -CA client-ca.crt -CAkey client-ca.key -CAcreateserial \
     -out client.crt -days 2",
];

/// A running API server, controller manager and scheduler. All are killed on
/// drop and when the thread that started them exits. The network of this thread must be
/// private: the ports are fixed.
#[derive(Debug)]
pub struct ControlPlane {
    server: ApiServer,
    controllers: Vec<Child>,
}

impl ControlPlane {
    /// Starts all for these nodes and waits until the server is ready. The nodes connect to
    /// `address`, as a pod does to the first address of the services.
    pub fn start(address: Ipv4Addr, nodes: &[&str]) -> Self {
        let dir = new_dir();
        for line in CERTIFICATES {
            let mut openssl = Command::new("openssl");
            openssl.args(line.split_whitespace()).current_dir(&dir);
            let output = openssl.output().expect("openssl is in PATH");
            assert!(output.status.success(), "openssl {line}: {output:?}");
        }
        let file = |name: &str| dir.path().join(name).display().to_string();
        let flags = vec![
            format!("--kubelet-client-certificate={}", file("client.crt")),
            format!("--kubelet-client-key={}", file("client.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        let tokens = nodes.iter().map(|node| {
            let token = token_of(node);
            format!("{token},system:node:{node},{node},\"system:nodes\"\n")
        });
        let tokens: String = tokens.collect();
        let server = ApiServer::start_for_nodes(dir, address, flags, &tokens);
        let start = |name: &str, flags: &[String]| {
            let log = server.dir().join(format!("{name}.log"));
            let certificates = server.dir().join(name);
            Launch::new(name)
                .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
                .arg(format!("--cert-dir={}", certificates.display()))
                .arg("--leader-elect=false")
                .args(flags)
                .spawn_logged(&log)
        };
        let key = server.accounts_key();
        let flags = [
            format!("--service-account-private-key-file={}", key.display()),
            format!("--root-ca-file={}", server.ca_file().display()),
        ];
        let controllers = vec![start(CONTROLLER_MANAGER, &flags), start(SCHEDULER, &[])];
        Self {
            server,
            controllers,
        }
    }

    /// The API server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Writes the files of a node's kubelet: `kubeconfig` with `server.crt`, and
    /// `client-ca.crt` for the API server's client certificate.
    pub fn write_node_files(&self, node: &str, dir: &Path) {
        let config = self
            .server
            .kubeconfig_of(&token_of(node), Path::new("server.crt"));
        fs::write(dir.join("kubeconfig"), config).expect("a file can be written");
        let copy = |from: &Path, name| fs::copy(from, dir.join(name)).expect("it can be copied");
        copy(&self.server.ca_file(), "server.crt");
        let client_ca = "client-ca.crt";
        copy(&self.server.dir().join(client_ca), client_ca);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.controllers.iter_mut().for_each(end);
    }
}

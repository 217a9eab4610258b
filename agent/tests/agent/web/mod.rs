//! The agent with a web configuration: TLS, users, and malicious clients.

mod certificates;
mod clients;
mod flood;
mod prometheus;
mod refused;
mod users;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use virtlens_tests::need;

use crate::program::Agent;

/// A minimal configuration with TLS.
const TLS: &str = "tls_server_config: {cert_file: web.crt, key_file: web.key}\n";

/// The minimum that an agent reads from its host.
const HOST: [(&str, &str); 3] = [
    ("host/proc/sys/kernel/hostname", "node\n"),
    ("host/proc/sys/kernel/osrelease", "6.12.0\n"),
    ("host/sys/devices/system/cpu/online", "0\n"),
];

/// A directory with a web configuration and a CA, whose certificate is `ca.crt`.
pub(crate) struct Site {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    /// Creates a site with a certificate for 127.0.0.1, `web.crt` and `web.key`.
    pub(crate) fn new(web_config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // A unique name, because OpenSSL finds issuers by name.
        let name = text(dir.path()).to_owned();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let site = Self { dir, authority };
        site.write("ca.crt", &site.authority.pem());
        site.certify("web", "127.0.0.1");
        site.write("web.yaml", web_config);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// Creates a certificate for this name, `STEM.crt` and `STEM.key`.
    pub(crate) fn certify(&self, stem: &str, name: &str) {
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params
            .signed_by(&key, &self.authority)
            .expect("a certificate");
        self.write(&format!("{stem}.crt"), &certificate.pem());
        self.write(&format!("{stem}.key"), &key.serialize_pem());
    }

    /// Starts an agent on a minimal host of one CPU: it needs no privileges and starts at
    /// once.
    pub(crate) fn start(&self) -> Agent {
        write_host(self.dir.path());
        let (web_config, root) = (self.path("web.yaml"), self.path("host"));
        Agent::start(&["--web-config", text(&web_config), "--root", text(&root)])
    }

    /// Runs curl, which trusts the CA of this site.
    fn curl(&self, agent: &Agent, path: &str, args: &[&str]) -> Curled {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--noproxy", "*"])
            .args(["--max-time", "20", "--cacert", text(&self.path("ca.crt"))])
            .args(args)
            .arg(format!("https://{}{path}", agent.address))
            .output()
            .expect("curl is in PATH");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let status = said
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        Curled {
            status: status.and_then(|code| code.parse().ok()),
            said,
            exit: output.status.code(),
            error: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Writes a minimal host below `dir`, as `host`.
pub(crate) fn write_host(dir: &Path) {
    for (file, line) in HOST {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("created");
        fs::write(path, line).expect("written");
    }
}

/// Result of a curl run.
#[derive(Debug)]
struct Curled {
    /// HTTP status; `None` if no answer arrived.
    status: Option<u16>,
    /// The answer with its headers.
    said: String,
    exit: Option<i32>,
    error: String,
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn curl_is_here(test: &str) -> bool {
    need::all(test, [need::curl()])
}

/// `basic_auth_users` with this user, at the minimum bcrypt cost.
fn user(name: &str, password: &str) -> String {
    let hash = bcrypt::hash(password, 4).expect("a hash");
    format!("basic_auth_users: {{{name}: {hash}}}\n")
}

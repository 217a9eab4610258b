//! Names of pods from a kubelet's `/pods`. The test server uses TLS with its own
//! certificate, and answers as a kubelet does.

use std::env;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use virtlens_kube::{Kubelet, Names, PodsState, Source};

const TOKEN: &str = "of-the-service-account";

const PODS: &str = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [
    {"metadata": {"uid": "8c2d", "name": "web", "namespace": "shop"},
     "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}}]}"#;

/// A kubelet, and the data to query it.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicU32>,
    dir: TempDir,
}

impl Server {
    /// Answers requests with the token with this status and body, others with 401.
    fn start(status: &'static str, body: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (config, ca) = certified();
        fs::write(dir.path().join("ca.crt"), ca).expect("written");
        fs::write(dir.path().join("token"), TOKEN).expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it can be");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        // It ends with the test process.
        thread::spawn(move || serve(listener, &config, &count, status, body));
        Self {
            address,
            asked,
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn follow(&self, ca_file: &Path, token_file: &Path) -> Names {
        let kubelet = Kubelet {
            url: format!("https://{}", self.address),
            ca_file: Some(ca_file.to_owned()),
            token_file: Some(token_file.to_owned()),
        };
        Names::start(Source::Kubelet(kubelet)).expect("a thread")
    }
}

/// Creates a self-signed certificate for 127.0.0.1; returns it in PEM too.
fn certified() -> (Arc<ServerConfig>, String) {
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("they belong together");
    (Arc::new(config), certificate.pem())
}

fn serve(
    listener: TcpListener,
    config: &Arc<ServerConfig>,
    asked: &AtomicU32,
    status: &str,
    body: &str,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    runtime.expect("a runtime").block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let tls = TlsAcceptor::from(Arc::clone(config));
        loop {
            let (stream, _) = listener.accept().await.expect("a client");
            // A client that does not trust the certificate disconnects.
            let Ok(mut stream) = tls.accept(stream).await else {
                continue;
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a head"));
            }
            asked.fetch_add(1, Ordering::Relaxed);
            let head = String::from_utf8(head).expect("text");
            assert!(head.starts_with("GET /pods HTTP/1.1\r\n"), "{head}");
            let is_known = head.contains(&format!("Bearer {TOKEN}\r\n"));
            let (status, body) = if is_known {
                (status, body)
            } else {
                ("401 Unauthorized", "Unauthorized")
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.expect("written");
            stream.shutdown().await.expect("closed");
        }
    });
}

/// Waits for an answer or a failure.
fn answer(names: &Names) -> PodsState {
    names.wait(Duration::from_mins(1));
    names.read()
}

#[test]
fn kubelet_pods_are_cached() {
    let server = Server::start("200 OK", PODS);
    let names = server.follow(&server.path("ca.crt"), &server.path("token"));
    let state = answer(&names);
    assert_eq!(state.failure, "");
    assert_eq!(&*state.pods["8c2d"].name, "web");
    assert_eq!(state.pods["8c2d"].spec.cpu_limit_millis, Some(1000));
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        names.read();
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.asked.load(Ordering::Relaxed), 1);
}

/// The agent's image has none.
#[test]
fn system_certificates_are_not_needed() {
    let mut itself = Command::new(env::current_exe().expect("a path"));
    let output = itself
        .args(["--exact", "kubelet_pods_are_cached"])
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/nonexistent")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn kubelet_with_untrusted_certificate_gets_no_token() {
    let server = Server::start("200 OK", PODS);
    let (_, other) = certified();
    fs::write(server.path("other.crt"), other).expect("written");
    let names = server.follow(&server.path("other.crt"), &server.path("token"));
    let state = answer(&names);
    assert!(state.failure.contains("certificate"), "{}", state.failure);
    assert!(state.pods.is_empty());
    assert_eq!(server.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn kubelet_refusal_is_reported_with_remedy() {
    let forbidden = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "forbidden: nodes/pods", "reason": "Forbidden", "code": 403}"#;
    let server = Server::start("403 Forbidden", forbidden);
    let names = server.follow(&server.path("ca.crt"), &server.path("token"));
    let failure = answer(&names).failure;
    assert!(failure.contains("grant get on nodes/pods"), "{failure}");

    fs::write(server.path("stale"), "of-yesterday").expect("written");
    let names = server.follow(&server.path("ca.crt"), &server.path("stale"));
    let failure = answer(&names).failure;
    assert!(failure.contains("(401)"), "{failure}");
}

#[test]
fn endless_kubelet_answer_is_refused() {
    let blanks: &'static str = " ".repeat(65 << 20).leak();
    let server = Server::start("200 OK", blanks);
    let names = server.follow(&server.path("ca.crt"), &server.path("token"));
    let failure = answer(&names).failure;
    assert!(failure.contains("exceeds 64 MiB"), "{failure}");
}

#[test]
fn missing_ca_file_is_named() {
    let server = Server::start("200 OK", PODS);
    let names = server.follow(&server.path("no-such.crt"), &server.path("token"));
    let failure = answer(&names).failure;
    assert!(failure.contains("no-such.crt"), "{failure}");
}

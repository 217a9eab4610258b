//! Malicious clients, while a scrape must succeed.

use std::fs;
use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring,
};

use super::{Site, TLS, curl_is_here, user};
use crate::program::Agent;

const CREDENTIALS: [&str; 2] = ["--user", "prom:secret"];

/// Limit on the growth of the agent's memory under any load.
const GROWTH_BYTES: u64 = 32 << 20;

fn guarded() -> Site {
    Site::new(&(TLS.to_owned() + &user("prom", "secret")))
}

fn resident_bytes(agent: &Agent) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
}

/// Runs `harm`; afterwards a scrape must succeed, and the agent must not have grown.
fn assert_unharmed<T>(site: &Site, agent: &Agent, harm: impl FnOnce() -> T) {
    let scrape = || site.curl(agent, "/metrics", &CREDENTIALS);
    assert_eq!(scrape().status, Some(200));
    let before = resident_bytes(agent);
    let held = harm();
    for _ in 0..5 {
        let got = scrape();
        assert_eq!(got.status, Some(200), "{got:?}");
    }
    let growth = resident_bytes(agent) - before;
    assert!(growth < GROWTH_BYTES, "grown by {growth} bytes");
    drop(held);
}

/// Raises the limit on this process's open files above a login shell's 1024.
fn allow_many_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("the limit can be raised");
}

#[test]
fn thousand_half_open_connections_do_not_block_scrape() {
    if !curl_is_here("thousand_half_open_connections_do_not_block_scrape") {
        return;
    }
    allow_many_files();
    let site = guarded();
    let agent = site.start();
    // Nothing, the start of a TLS handshake, and bytes that are not TLS.
    let begins: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /metrics HT"];
    assert_unharmed(&site, &agent, || {
        let connections = begins.iter().cycle().take(1000).map(|begin| {
            let mut stream = agent.connect();
            // The connection may have been evicted already.
            drop(stream.write_all(begin));
            stream
        });
        connections.collect::<Vec<_>>()
    });
    let open = fs::read_dir(format!("/proc/{}/fd", agent.pid())).expect("it lives");
    assert!(open.count() < 512, "it keeps too many of them");
}

#[test]
fn idle_client_after_handshake_does_not_block_scrape() {
    if !curl_is_here("idle_client_after_handshake_does_not_block_scrape") {
        return;
    }
    allow_many_files();
    let site = guarded();
    let agent = site.start();
    assert_unharmed(&site, &agent, || {
        let connections = (0..400).map(|_| {
            let mut stream = connect(&site, &agent);
            drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nX: "));
            stream
        });
        connections.collect::<Vec<_>>()
    });
}

#[test]
fn non_reading_client_does_not_block_scrape() {
    if !curl_is_here("non_reading_client_does_not_block_scrape") {
        return;
    }
    let site = Site::new(TLS);
    let agent = site.start();
    assert_unharmed(&site, &agent, || {
        let connections = (0..200).map(|_| {
            let mut stream = connect(&site, &agent);
            drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n"));
            stream
        });
        connections.collect::<Vec<_>>()
    });
}

fn connect(site: &Site, agent: &Agent) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(site.path("ca.crt")).expect("PEM");
    roots.add(authority).expect("an authority's");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    StreamOwned::new(client, agent.connect())
}

#[test]
fn header_of_a_gigabyte_is_refused() {
    if !curl_is_here("header_of_a_gigabyte_is_refused") {
        return;
    }
    let site = guarded();
    let agent = site.start();
    assert_unharmed(&site, &agent, || {
        let mut stream = connect(&site, &agent);
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nX: ")
            .expect("it reads");
        let part = vec![b'x'; 1 << 20];
        let written = (0..1024)
            .take_while(|_| stream.write_all(&part).is_ok())
            .count();
        assert!(written < 64, "it took {written} MiB");
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
    });
}

#[test]
fn endless_body_is_refused() {
    if !curl_is_here("endless_body_is_refused") {
        return;
    }
    let site = guarded();
    let agent = site.start();
    assert_unharmed(&site, &agent, || {
        for (method, code) in [("GET", 413), ("PUT", 405)] {
            let body = ["--upload-file", "/dev/zero", "--header", "Expect:"];
            let args = [&["--request", method][..], &body, &CREDENTIALS].concat();
            let got = site.curl(&agent, "/metrics", &args);
            // The connection may be closed before the answer is read.
            assert!(
                got.status.is_none_or(|status| status == code),
                "{method}: {got:?}"
            );
            assert_ne!(got.exit, Some(28), "curl's patience ended: {got:?}");
        }
        let args = [&["--request", "GET", "--data", "x"][..], &CREDENTIALS].concat();
        assert_eq!(site.curl(&agent, "/metrics", &args).status, Some(413));
    });
}

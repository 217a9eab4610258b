//! The server certificate and its rotation.

use std::fs;
use std::os::unix::fs::symlink;

use virtlens_tests::eventually;

use super::{Site, TLS, curl_is_here};
use crate::program::Agent;

/// curl's exit code for an untrusted certificate.
const UNTRUSTED: Option<i32> = Some(60);
/// curl's exit code for a failed handshake.
const NO_HANDSHAKE: Option<i32> = Some(35);

#[test]
fn tls_applies_to_every_path() {
    if !curl_is_here("tls_applies_to_every_path") {
        return;
    }
    let site = Site::new(&format!(
        "{TLS}http_server_config: {{http2: true, headers: {{X-Frame-Options: deny}}}}\n"
    ));
    let agent = site.start();
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        let got = site.curl(&agent, path, &[]);
        assert_eq!(got.status, Some(200), "{path}: {got:?}");
        assert!(
            got.said.contains("\r\nx-frame-options: deny\r\n"),
            "{got:?}"
        );
    }
    assert!(
        site.curl(&agent, "/metrics", &[])
            .said
            .contains("virtlens_build_info{")
    );
    // A client that prefers HTTP/2 is served too.
    assert_eq!(
        site.curl(&agent, "/metrics", &["--http2"]).status,
        Some(200)
    );
    // A client with another CA does not trust the certificate.
    let other = Site::new(TLS);
    assert_eq!(other.curl(&agent, "/metrics", &[]).exit, UNTRUSTED);
    let plain = agent.send_raw("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(!String::from_utf8_lossy(&plain).contains("HTTP/1.1"));
}

#[test]
fn inline_certificate_is_served() {
    if !curl_is_here("inline_certificate_is_served") {
        return;
    }
    let site = Site::new("");
    let indented = |name: &str| {
        let pem = fs::read_to_string(site.path(name)).expect("PEM");
        pem.replace('\n', "\n    ")
    };
    let (cert, key) = (indented("web.crt"), indented("web.key"));
    let section = format!("tls_server_config:\n  cert: |\n    {cert}\n  key: |\n    {key}\n");
    site.write("web.yaml", &section);
    assert_eq!(site.curl(&site.start(), "/healthz", &[]).status, Some(200));
}

#[test]
fn example_web_config_is_accepted() {
    if !curl_is_here("example_web_config_is_accepted") {
        return;
    }
    let site = Site::new(include_str!("../../../../deploy/web-config.example.yaml"));
    site.certify("tls", "127.0.0.1");
    let agent = site.start();
    for path in ["/metrics", "/healthz"] {
        let got = site.curl(&agent, path, &[]);
        assert_eq!(got.status, Some(200), "{got:?}");
        let head = got.said.to_lowercase();
        // Answers in plain text have the second header by default.
        for name in ["x-frame-options", "x-content-type-options"] {
            let sent = head.matches(&format!("\r\n{name}: ")).count();
            assert_eq!(sent, 1, "{name} of {path}: {got:?}");
        }
    }
}

#[test]
fn only_configured_tls_versions_and_suites_are_offered() {
    let test = "only_configured_tls_versions_and_suites_are_offered";
    if !curl_is_here(test) {
        return;
    }
    let section =
        |more| format!("tls_server_config: {{cert_file: web.crt, key_file: web.key{more}}}\n");
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let only =
        format!(", max_version: TLS12, cipher_suites: [{suite}], curve_preferences: [CurveP384]");
    for (more, args, exit) in [
        ("", &["--tls-max", "1.2"][..], Some(0)),
        ("", &["--tlsv1.3"], Some(0)),
        ("", &["--tls-max", "1.1"], NO_HANDSHAKE),
        (", min_version: TLS13", &["--tls-max", "1.2"], NO_HANDSHAKE),
        (", min_version: TLS13", &[], Some(0)),
        (", max_version: TLS12", &["--tlsv1.3"], NO_HANDSHAKE),
        (
            &only,
            &["--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"],
            Some(0),
        ),
        (
            &only,
            &["--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            NO_HANDSHAKE,
        ),
        (&only, &["--curves", "X25519"], NO_HANDSHAKE),
    ] {
        let site = Site::new(&section(more));
        let got = site.curl(&site.start(), "/healthz", args);
        assert_eq!(got.exit, exit, "{more} {args:?}: {got:?}");
    }
}

/// Polls until the agent has reloaded its files.
fn until_served(site: &Site, agent: &Agent) {
    eventually("the new certificate is served", || {
        (site.curl(agent, "/healthz", &[]).status == Some(200)).then_some(())
    });
}

#[test]
fn replaced_certificate_is_served_without_restart() {
    if !curl_is_here("replaced_certificate_is_served_without_restart") {
        return;
    }
    // The layout of a mounted Kubernetes secret: links to files below a link that is
    // replaced.
    let (old, new) = (Site::new(TLS), Site::new(TLS));
    let mount = Site::new(TLS);
    let at = |name: &str| mount.path(name);
    symlink(old.dir.path(), at("..data")).expect("linked");
    for name in ["web.crt", "web.key", "web.yaml"] {
        fs::remove_file(at(name)).expect("it was there");
        symlink(format!("..data/{name}"), at(name)).expect("linked");
    }
    let agent = mount.start();
    assert_eq!(old.curl(&agent, "/healthz", &[]).status, Some(200));
    assert_eq!(new.curl(&agent, "/healthz", &[]).exit, UNTRUSTED);

    symlink(new.dir.path(), at("..next")).expect("linked");
    fs::rename(at("..next"), at("..data")).expect("swapped");
    until_served(&new, &agent);
    assert_eq!(old.curl(&agent, "/healthz", &[]).exit, UNTRUSTED);
}

#[test]
fn invalid_reload_keeps_old_config_and_logs_once() {
    if !curl_is_here("invalid_reload_keeps_old_config_and_logs_once") {
        return;
    }
    let (site, other) = (Site::new(TLS), Site::new(TLS));
    let agent = site.start();
    let refused = "cannot reload the web configuration";
    let ask = || site.curl(&agent, "/healthz", &[]).status;
    assert_eq!(ask(), Some(200));
    let certificate = fs::read_to_string(other.path("web.crt")).expect("a certificate");
    // A partial rotation, in which the key is still the old one, and an invalid one.
    for (name, broken, reason) in [
        (
            "web.crt",
            certificate.as_str(),
            "does not match certificate",
        ),
        (
            "web.crt",
            "not a certificate",
            "no certificate in PEM format",
        ),
        ("web.yaml", "", "no longer requires TLS"),
        ("web.yaml", "tls_server_config: [", "tls_server_config"),
    ] {
        let good = fs::read_to_string(site.path(name)).expect("it was there");
        site.write(name, broken);
        let line = agent.logged_while(refused, || assert_eq!(ask(), Some(200)));
        assert!(line.contains(reason), "{line}");
        site.write(name, &good);
        agent.logged_while("reloaded the web configuration", || {
            assert_eq!(ask(), Some(200));
        });
    }
    fs::remove_file(site.path("web.key")).expect("it was there");
    let line = agent.logged_while(refused, || assert_eq!(ask(), Some(200)));
    assert!(line.contains("web.key"), "{line}");
    // Longer than the interval between two checks of the files.
    for _ in 0..15 {
        assert_eq!(ask(), Some(200));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let (_, rest) = agent.stop();
    assert!(!rest.iter().any(|line| line.contains(refused)), "{rest:#?}");
}

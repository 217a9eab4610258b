//! Rejected web configurations, each with a remedy.

use super::{Site, text};
use crate::errors::assert_fails;
use crate::program::output;

/// The keys of a section in addition to `cert_file: web.crt`, and words of the error.
const SECTIONS: [(&str, &[&str]); 15] = [
    ("", &["key_file", "missing"]),
    ("key_file: no.key", &["no.key", "No such file"]),
    ("key_file: web.crt", &["web.crt", "no private key"]),
    ("key_file: ca.key", &["ca.key", "web.crt", "does not match"]),
    ("key_file: web.key, cert: x", &["cert_file", "exclusive"]),
    (
        "key_file: web.key, client_ca_file: ca.crt",
        &["RequireAndVerifyClientCert"],
    ),
    (
        "key_file: web.key, client_auth_type: RequireAndVerifyClientCert",
        &["requires", "client_ca_file"],
    ),
    (
        "key_file: web.key, client_auth_type: RequireAnyClientCert",
        &["not supported", "RequireAndVerifyClientCert"],
    ),
    (
        "key_file: web.key, client_auth_type: Always",
        &["Always", "NoClientCert"],
    ),
    (
        "key_file: web.key, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.crt, \
         client_allowed_sans: [a@b.example]",
        &["a@b.example", "URI"],
    ),
    (
        "key_file: web.key, min_version: TLS10",
        &["min_version", "TLS10", "TLS12"],
    ),
    (
        "key_file: web.key, min_version: TLS13, max_version: TLS12",
        &["higher"],
    ),
    (
        "key_file: web.key, cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]",
        &["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_AES_128_GCM_SHA256"],
    ),
    (
        "key_file: web.key, curve_preferences: [CurveP521]",
        &["CurveP521", "X25519"],
    ),
    ("keyfile: web.key", &["keyfile", "key_file"]),
];

/// Other invalid files.
const FILES: [(&str, &[&str]); 7] = [
    (
        "tls_server_config: {cert_file: web.key, key_file: web.key}\n",
        &["web.key", "no certificate"],
    ),
    (
        "basic_auth_users: {prom: secret}\n",
        &["\"prom\"", "bcrypt", "htpasswd"],
    ),
    (
        "http_server_config: {headers: {X-Own: a}}\n",
        &["X-Own", "X-Frame-Options"],
    ),
    (
        "http_server_config: {header: {}}\n",
        &["unknown key \"header\"", "nearest known keys: headers"],
    ),
    (
        "http_server_config: {headers: {X-Frame-Options: all}}\n",
        &["\"all\"", "deny or sameorigin"],
    ),
    (
        "rate_limit: {interval: 1s, burst: 2}\n",
        &["rate_limit", "remove it"],
    ),
    (
        "# a\nbasic_auth: {}\n",
        &["basic_auth", "line 2", "basic_auth_users"],
    ),
];

#[test]
fn invalid_web_config_fails_at_start() {
    let site = Site::new("");
    site.write("ca.key", &site.authority.key().serialize_pem());
    let section = |more| format!("tls_server_config: {{cert_file: web.crt, {more}}}\n");
    let sections = SECTIONS.map(|(more, words)| (section(more), words));
    let files = FILES.map(|(file, words)| (file.to_owned(), words));
    for (web_config, words) in sections.into_iter().chain(files) {
        site.write("web.yaml", &web_config);
        let path = site.path("web.yaml");
        let file = text(&path);
        let output = output(&["run", "--listen", "127.0.0.1:0", "--web.config.file", file]);
        assert_fails(&output, 2, words);
        assert_fails(&output, 2, &[file]);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(
            !reported.contains("secret"),
            "no secret is printed: {reported}"
        );
    }
    let nowhere = "/nowhere/web.yaml";
    let output = output(&["run", "--listen", "127.0.0.1:0", "--web-config", nowhere]);
    assert_fails(&output, 2, &[nowhere, "No such file"]);
}

#[test]
fn empty_web_config_requires_nothing() {
    for web_config in [
        "",
        "# nothing\n",
        "tls_server_config: {min_version: TLS13}\n",
    ] {
        let answer = Site::new(web_config).start().get("/metrics");
        assert_eq!(answer.status, 200, "{web_config:?}");
    }
}

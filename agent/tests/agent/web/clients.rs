//! Client certificates.

use super::{Site, curl_is_here, text};

fn section(policy: &str, more: &str) -> String {
    format!(
        "tls_server_config: {{cert_file: web.crt, key_file: web.key, client_ca_file: ca.crt, \
         client_auth_type: {policy}{more}}}\n"
    )
}

/// HTTP status for a client of this site that presents the certificate `STEM.crt` of
/// `owner`.
fn status(site: &Site, web_config: &str, owner: &Site, stem: &str) -> Option<u16> {
    site.write("web.yaml", web_config);
    let agent = site.start();
    let (crt, key) = (
        owner.path(&format!("{stem}.crt")),
        owner.path(&format!("{stem}.key")),
    );
    let args = ["--cert", text(&crt), "--key", text(&key)];
    site.curl(&agent, "/metrics", &args).status
}

#[test]
fn client_certificate_of_ca_is_required() {
    if !curl_is_here("client_certificate_of_ca_is_required") {
        return;
    }
    let required = section("RequireAndVerifyClientCert", "");
    let optional = section("VerifyClientCertIfGiven", "");
    let (site, other) = (Site::new(&required), Site::new(&required));
    site.certify("prom", "prometheus.example");
    other.certify("prom", "prometheus.example");

    let agent = site.start();
    // TLS is required on paths without a password too.
    for path in ["/metrics", "/healthz"] {
        let got = site.curl(&agent, path, &[]);
        assert_eq!(got.status, None, "{path}: {got:?}");
        assert!(
            got.exit != Some(0) && got.error.contains("certificate required"),
            "{got:?}"
        );
    }
    assert_eq!(status(&site, &required, &site, "prom"), Some(200));
    assert_eq!(status(&site, &required, &other, "prom"), None);
    assert_eq!(status(&site, &optional, &site, "prom"), Some(200));
    assert_eq!(status(&site, &optional, &other, "prom"), None);
    assert_eq!(site.curl(&site.start(), "/metrics", &[]).status, Some(200));
}

#[test]
fn only_client_certificates_with_allowed_names_are_accepted() {
    if !curl_is_here("only_client_certificates_with_allowed_names_are_accepted") {
        return;
    }
    let site = Site::new("");
    for (name, allowed, code) in [
        ("a.example", "[b.example, a.example]", Some(200)),
        ("a.example", "[b.example]", None),
        ("a.example", "[example]", None),
        ("*.example", "[a.example]", None),
        ("10.1.2.3", "[10.1.2.3]", Some(200)),
        ("10.1.2.3", "[10.1.2.4]", None),
        ("a.example", "[]", None),
    ] {
        site.certify("client", name);
        let sans = format!(", client_allowed_sans: {allowed}");
        let web_config = section("RequireAndVerifyClientCert", &sans);
        let got = status(&site, &web_config, &site, "client");
        assert_eq!(got, code, "{name} of {allowed}");
    }
}

/// A reload of a partially written file that ends after the CA.
#[test]
fn reload_that_drops_allowed_names_is_refused() {
    if !curl_is_here("reload_that_drops_allowed_names_is_refused") {
        return;
    }
    let policy = "RequireAndVerifyClientCert";
    let site = Site::new(&section(policy, ", client_allowed_sans: [b.example]"));
    site.certify("client", "a.example");
    let agent = site.start();
    let (crt, key) = (site.path("client.crt"), site.path("client.key"));
    let args = ["--cert", text(&crt), "--key", text(&key)];
    let ask = || assert_eq!(site.curl(&agent, "/metrics", &args).status, None);
    ask();
    site.write("web.yaml", &section(policy, ""));
    let refused = "cannot reload the web configuration";
    let line = agent.logged_while(refused, ask);
    assert!(
        line.contains("no longer requires client_allowed_sans"),
        "{line}"
    );
    ask();
}

//! TLS settings of a web configuration, for rustls with ring.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    NamedGroup, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};

use super::client_names::{AllowedNames, parse_names};
use super::web_source::ReadText;

/// Go's names of the groups that ring supports.
const CURVES: [(&str, NamedGroup); 3] = [
    ("X25519", NamedGroup::X25519),
    ("CurveP256", NamedGroup::secp256r1),
    ("CurveP384", NamedGroup::secp384r1),
];

/// The section `tls_server_config`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsSection {
    cert: Option<String>,
    cert_file: Option<String>,
    key: Option<String>,
    key_file: Option<String>,
    client_ca: Option<String>,
    client_ca_file: Option<String>,
    client_auth_type: Option<String>,
    client_allowed_sans: Option<Vec<String>>,
    min_version: Option<String>,
    max_version: Option<String>,
    cipher_suites: Option<Vec<String>>,
    prefer_server_cipher_suites: Option<bool>,
    curve_preferences: Option<Vec<String>>,
}

impl TlsSection {
    /// Whether the section enables TLS, instead of only setting its parameters.
    pub(super) fn is_enabled(&self) -> bool {
        let keys = [
            &self.cert,
            &self.cert_file,
            &self.key,
            &self.key_file,
            &self.client_ca,
            &self.client_ca_file,
            &self.client_auth_type,
        ];
        keys.iter().any(|key| key.is_some())
    }

    /// Whether client certificates must have certain names.
    pub(super) fn wants_names(&self) -> bool {
        self.client_allowed_sans.is_some()
    }

    /// Whether clients without a certificate are rejected.
    pub(super) fn wants_certificates(&self) -> bool {
        self.client_auth_type.as_deref() == Some("RequireAndVerifyClientCert")
    }
}

/// Converts a section to rustls settings. Paths in it are relative to `base`.
pub(super) fn server_config(
    section: &TlsSection,
    base: &Path,
    read: ReadText<'_>,
) -> Result<ServerConfig, String> {
    let mut pem = |name: &str, inline: &Option<String>, file: &Option<String>| match (inline, file)
    {
        (Some(_), Some(_)) => Err(format!("{name} and {name}_file are mutually exclusive")),
        (Some(text), None) => Ok(Some((name.to_owned(), text.clone()))),
        (None, Some(file)) => {
            let path = base.join(file);
            let text = read(&path);
            text.map(|text| Some((path.display().to_string(), text)))
        }
        (None, None) => Ok(None),
    };
    let missing = |name| format!("{name} or {name}_file is missing");
    let chain = pem("cert", &section.cert, &section.cert_file)?.ok_or_else(|| missing("cert"))?;
    let key = pem("key", &section.key, &section.key_file)?.ok_or_else(|| missing("key"))?;
    let authority = pem("client_ca", &section.client_ca, &section.client_ca_file)?;

    let provider = Arc::new(provider(section)?);
    let verifier = verifier(section, authority, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(section)?)
        .map_err(|error| error.to_string())?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let certificates = certificates(&chain.0, &chain.1)?;
    let secret = PrivateKeyDer::from_pem_slice(key.1.as_bytes())
        .map_err(|error| unusable(&key.0, "private key", &error))?;
    let mut config = builder
        .with_single_cert(certificates, secret)
        .map_err(|error| {
            format!(
                "key {} does not match certificate {}: {error}",
                key.0, chain.0
            )
        })?;
    config.ignore_client_order = section.prefer_server_cipher_suites.unwrap_or(true);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Prometheus does not resume sessions, so none are stored.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn unusable(name: &str, what: &str, error: &PemError) -> String {
    match error {
        PemError::NoItemsFound => format!("{name}: no {what} in PEM format found"),
        error => format!("{name}: invalid {what}: {error}"),
    }
}

fn certificates(name: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(unusable(name, "certificate", &PemError::NoItemsFound))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(unusable(name, "certificate", &error)),
    }
}

/// The verifier of client certificates; `None` if clients need none.
fn verifier(
    section: &TlsSection,
    authority: Option<(String, String)>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let policy = section.client_auth_type.as_deref().unwrap_or_default();
    let required = match policy {
        "" | "NoClientCert" => {
            if authority.is_some() || section.client_allowed_sans.is_some() {
                return Err(
                    "client_ca and client_allowed_sans require client_auth_type: \
                     RequireAndVerifyClientCert"
                        .to_owned(),
                );
            }
            return Ok(None);
        }
        "RequireAndVerifyClientCert" => true,
        "VerifyClientCertIfGiven" => false,
        "RequestClientCert" | "RequireAnyClientCert" | "RequireClientCert" => {
            return Err(format!(
                "client_auth_type {policy} is not supported because it does not verify \
                 certificates; use RequireAndVerifyClientCert"
            ));
        }
        _ => {
            return Err(format!(
                "unknown client_auth_type {policy:?} (expected RequireAndVerifyClientCert, \
                 VerifyClientCertIfGiven or NoClientCert)"
            ));
        }
    };
    let (name, text) = authority
        .ok_or_else(|| format!("client_auth_type {policy} requires client_ca or client_ca_file"))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&name, &text)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("{name}: invalid CA certificate: {error}"))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if required {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    let verifier = builder
        .build()
        .map_err(|error| format!("{name}: {error}"))?;
    Ok(Some(match &section.client_allowed_sans {
        Some(names) => Arc::new(AllowedNames::new(verifier, parse_names(names)?)),
        None => verifier,
    }))
}

fn versions(section: &TlsSection) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let number = |key: &str, name: &Option<String>, default| match name.as_deref() {
        None => Ok(default),
        Some("TLS12") => Ok(2),
        Some("TLS13") => Ok(3),
        Some(old @ ("TLS10" | "TLS11")) => Err(format!(
            "{key}: {old} is not supported because it is insecure (expected TLS12 or TLS13)"
        )),
        Some(other) => Err(format!(
            "{key}: unknown TLS version {other:?} (expected TLS12 or TLS13)"
        )),
    };
    let least = number("min_version", &section.min_version, 2)?;
    let most = number("max_version", &section.max_version, 3)?;
    if least > most {
        return Err("min_version is higher than max_version".to_owned());
    }
    let all = [(2, &TLS12), (3, &TLS13)];
    let wanted = all
        .iter()
        .filter(|(number, _)| (least..=most).contains(number));
    Ok(wanted.map(|(_, version)| *version).collect())
}

/// The algorithms of ring, restricted to those that the section names.
fn provider(section: &TlsSection) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    if let Some(names) = section
        .cipher_suites
        .as_ref()
        .filter(|names| !names.is_empty())
    {
        let known: Vec<_> = provider.cipher_suites.iter().map(go_name).collect();
        one_of("cipher_suites", names, &known)?;
        // As in Go, the list applies to TLS 1.2; the suites of TLS 1.3 are always
        // enabled.
        provider.cipher_suites.retain(|suite| {
            matches!(suite, SupportedCipherSuite::Tls13(_)) || names.contains(&go_name(suite))
        });
    }
    if let Some(names) = section
        .curve_preferences
        .as_ref()
        .filter(|names| !names.is_empty())
    {
        one_of(
            "curve_preferences",
            names,
            &CURVES.map(|(known, _)| known.to_owned()),
        )?;
        let groups = names.iter().filter_map(|name| {
            let (_, group) = CURVES.iter().find(|(known, _)| known == name)?;
            provider
                .kx_groups
                .iter()
                .find(|has| has.name() == *group)
                .copied()
        });
        provider.kx_groups = groups.collect();
    }
    Ok(provider)
}

/// Go's name of a suite. In Go the names of TLS 1.3 suites do not contain the version.
fn go_name(suite: &SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    name.replacen("TLS13_", "TLS_", 1)
}

fn one_of(key: &str, names: &[String], known: &[String]) -> Result<(), String> {
    match names.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{key}: {name:?} is not supported (supported: {})",
            known.join(", ")
        )),
    }
}

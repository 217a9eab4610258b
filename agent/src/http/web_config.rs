//! The web configuration file: the format of Prometheus' exporter-toolkit
//! (docs/web-configuration.md, as of v0.16), so that the files of its exporters work
//! here.
//!
//! An unsupported setting is an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio_rustls::rustls::ServerConfig;

use super::tls::{self, TlsSection};
use super::web_source::ReadText;
use crate::config::keys::{StrictKeys, strict_keys};
use crate::http::file_watch::FileWatch;

/// The headers that the format allows, with their valid values.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    #[serde(deserialize_with = "strict_keys")]
    tls_server_config: Option<TlsSection>,
    #[serde(deserialize_with = "strict_keys")]
    http_server_config: Option<HttpSection>,
    basic_auth_users: Option<BTreeMap<String, String>>,
    rate_limit: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpSection {
    /// Ignored: the server always uses HTTP/1.1. The format's default is true, so files
    /// contain both values.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

/// Requirements of a web configuration for each connection.
#[derive(Default)]
pub(super) struct WebConfig {
    /// TLS settings; `None` = no TLS.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// Whether clients must present a certificate.
    pub(super) client_certificates: bool,
    /// Whether client certificates must have certain names.
    pub(super) client_names: bool,
    /// Users, with the bcrypt hashes of their passwords; if empty, no password is
    /// required.
    pub(super) users: BTreeMap<String, String>,
    /// Additional headers of every answer.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl WebConfig {
    /// Reads the file and those it names, all of them through `files`.
    ///
    /// # Errors
    ///
    /// The error, its key or file, and the remedy.
    pub(super) fn read(path: &Path, files: &mut FileWatch) -> Result<Self, String> {
        let text = files.read_text(path)?;
        let base = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, base, &mut |path| files.read_text(path))
    }

    /// Parses the text of the file, whose paths are relative to `base`; `read` reads the
    /// files that it names.
    fn parse(text: &str, base: &Path, read: ReadText<'_>) -> Result<Self, String> {
        // A file of comments alone is a null document.
        let file: Result<Option<StrictKeys<File>>, _> = serde_norway::from_str(text);
        let file = file.map_err(|error| error.to_string())?;
        let file = file.map_or_else(File::default, |known| known.0);
        if file.rate_limit.is_some() {
            return Err(
                "rate_limit is not supported; remove it and use --min-age to limit the cost of \
                 requests"
                    .to_owned(),
            );
        }
        let (tls, client_certificates, client_names) = match file.tls_server_config {
            Some(section) if section.is_enabled() => {
                let certificates = section.wants_certificates();
                let names = section.wants_names();
                let tls = tls::server_config(&section, base, read);
                let tls = tls.map_err(|reason| format!("tls_server_config: {reason}"))?;
                (Some(Arc::new(tls)), certificates, names)
            }
            _ => (None, false, false),
        };
        let headers = file.http_server_config.and_then(|http| http.headers);
        Ok(Self {
            tls,
            client_certificates,
            client_names,
            users: checked_users(file.basic_auth_users.unwrap_or_default())?,
            headers: checked_headers(&headers.unwrap_or_default())?,
        })
    }

    /// The requirements that these settings impose on a client, by name. A reload may add
    /// requirements but not remove any, so that a partially written file cannot disable
    /// access control.
    pub(super) fn demands(&self) -> [(&'static str, bool); 4] {
        [
            ("TLS", self.tls.is_some()),
            ("client certificates", self.client_certificates),
            ("client_allowed_sans", self.client_names),
            ("basic_auth_users", !self.users.is_empty()),
        ]
    }
}

/// Checks the text of a web configuration file; `read` reads the files that it names.
///
/// # Errors
///
/// The error, its key or file, and the remedy.
pub fn check_web_config(text: &str, read: ReadText<'_>) -> Result<(), String> {
    WebConfig::parse(text, Path::new(""), read).map(drop)
}

fn checked_users(users: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    for (user, hash) in &users {
        let parts: Result<bcrypt::HashParts, _> = hash.parse();
        // The hash itself is not logged.
        if !parts.is_ok_and(|parts| (4..=31).contains(&parts.get_cost())) {
            return Err(format!(
                "basic_auth_users: the value of {user:?} is not a bcrypt hash; create one with: \
                 htpasswd -nBC 10 \"\" | tr -d ':\\n'"
            ));
        }
    }
    Ok(users)
}

fn checked_headers(
    headers: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut checked = Vec::new();
    for (name, value) in headers {
        let Some((_, allowed)) = HEADERS.iter().find(|(known, _)| known == name) else {
            let known: Vec<_> = HEADERS.iter().map(|(known, _)| *known).collect();
            return Err(format!(
                "headers: unknown header {name:?} (supported: {})",
                known.join(", ")
            ));
        };
        if !allowed.is_empty() && !allowed.contains(&value.as_str()) {
            return Err(format!(
                "headers: invalid value {value:?} of {name} (expected {})",
                allowed.join(" or ")
            ));
        }
        let value = HeaderValue::from_str(value)
            .map_err(|_| format!("headers: invalid value {value:?} of {name}"))?;
        // An empty value means that the header is not set.
        if !value.is_empty() {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name from the table");
            checked.push((name, value));
        }
    }
    Ok(checked)
}

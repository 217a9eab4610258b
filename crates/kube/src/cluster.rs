//! Configuration and clients for API servers and kubelets.

use std::error::Error;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{LengthLimitError, Limited};
use kube::client::ClientBuilder;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower_http::map_response_body::MapResponseBodyLayer;

/// Directory of a pod's service account credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A server that does not accept a connection within this time counts as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on the size of one answer: a list of 4096 pods of usual size.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Configuration of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// In-cluster, as for every pod: environment and service account.
    Inside,
    /// A kubeconfig file with its current context.
    Kubeconfig(PathBuf),
}

/// Configuration of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// Its URL, such as `https://10.0.0.7:10250`.
    pub url: String,
    /// CA certificates that sign the kubelet's; `None` = the service account's.
    pub ca_file: Option<PathBuf>,
    /// File with the bearer token; `None` = the service account's token.
    pub token_file: Option<PathBuf>,
}

/// Reason that a server cannot be queried, with the remedy if one is known.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreachable(String);

/// Identifies one version of a file: its device, inode, size, and times in s and ns.
/// Symbolic links are followed, because Kubernetes replaces a link above the file.
pub(crate) type Stamp = (PathBuf, Option<(u64, u64, u64, [i64; 4])>);

fn stamp(path: PathBuf) -> Stamp {
    let seen = std::fs::metadata(&path).ok().map(|meta| {
        let times = [
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        ];
        (meta.dev(), meta.ino(), meta.size(), times)
    });
    (path, seen)
}

impl Cluster {
    /// Stamps of the files from which a client is created. The token file is not among
    /// them: the client itself rereads it once a minute.
    pub(crate) fn stamps(&self) -> Vec<Stamp> {
        let files = match self {
            Self::Inside => vec![Path::new(SERVICE_ACCOUNT).join("ca.crt")],
            Self::Kubeconfig(path) => {
                let read = Kubeconfig::read_from(path).unwrap_or_default();
                let clusters = read.clusters.into_iter().filter_map(|one| one.cluster);
                let authorities = clusters.filter_map(|one| one.certificate_authority);
                let users = read.auth_infos.into_iter().filter_map(|one| one.auth_info);
                let users = users.flat_map(|one| [one.client_certificate, one.client_key]);
                let named = authorities.chain(users.flatten()).map(PathBuf::from);
                [path.clone()].into_iter().chain(named).collect()
            }
        };
        files.into_iter().map(stamp).collect()
    }

    /// Creates a client from the present content of its files, since certificates and
    /// addresses change.
    pub(crate) async fn client(&self) -> Result<Client, Unreachable> {
        let config = match self {
            Self::Inside => Config::incluster_env().map_err(|error| {
                Unreachable(format!(
                    "not running in a pod with a service account: {}; set a kubeconfig file with \
                     --kubeconfig, or disable pod names with --metadata none",
                    chain(&error)
                ))
            })?,
            Self::Kubeconfig(path) => {
                let unreachable =
                    |error| Unreachable(format!("{}: {}", path.display(), chain(&error)));
                let file = Kubeconfig::read_from(path).map_err(unreachable)?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(unreachable)?
            }
        };
        connect(config)
    }
}

impl Kubelet {
    pub(crate) fn client(&self) -> Result<Client, Unreachable> {
        let url = self.url.parse().map_err(|error| {
            Unreachable(format!(
                "invalid kubelet URL {:?}: {error} (expected a form like https://10.0.0.7:10250)",
                self.url
            ))
        })?;
        if !self.url.starts_with("https://") {
            return Err(Unreachable(format!(
                "refused to send the token unencrypted to {}: expected https://",
                self.url
            )));
        }
        let account = Path::new(SERVICE_ACCOUNT);
        let ca = self
            .ca_file
            .clone()
            .unwrap_or_else(|| account.join("ca.crt"));
        let token = self
            .token_file
            .clone()
            .unwrap_or_else(|| account.join("token"));
        for file in [&ca, &token] {
            std::fs::metadata(file)
                .map_err(|error| Unreachable(format!("{}: {error}", file.display())))?;
        }
        let mut config = Config::new(url);
        config.root_cert_file = Some(ca);
        config.auth_info = AuthInfo {
            token_file: Some(token.to_string_lossy().into_owned()),
            ..AuthInfo::default()
        };
        connect(config)
    }
}

/// A client whose answers are bounded.
pub(crate) fn connect(config: Config) -> Result<Client, Unreachable> {
    let config = prepared(config);
    let client = ClientBuilder::try_from(config).map_err(|error| Unreachable(chain(&error)))?;
    let bounded = MapResponseBodyLayer::new(|body| Limited::new(body, MAX_ANSWER_BYTES));
    Ok(client.with_layer(&bounded).build())
}

/// A client whose answers the caller bounds, or does not keep.
pub(crate) fn connect_unbounded(config: Config) -> Result<Client, Unreachable> {
    let client = Client::try_from(prepared(config));
    client.map_err(|error| Unreachable(chain(&error)))
}

fn prepared(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // An answer that is a stream may be silent for long; the reader has its own timeouts.
    config.read_timeout = None;
    // The file alone decides. kube 5.0 looks for the system's certificates, too, unless this
    // is set, and an image from scratch has none (`rustls_client_config`).
    if config.root_cert_file.is_some() {
        config.root_cert.get_or_insert_default();
    }
    config
}

/// Whether the error means that an answer exceeded [`MAX_ANSWER_BYTES`].
pub(crate) fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    let within = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    error.is::<LengthLimitError>()
        || within.is_some_and(|error| is_too_long(error))
        || error.source().is_some_and(is_too_long)
}

/// The message for such an answer.
pub(crate) fn too_long() -> String {
    format!("its answer exceeds {} MiB", MAX_ANSWER_BYTES >> 20)
}

/// Formats an error with all its causes, each text once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

//! What the agent is told: flags over environment over file over defaults.
//!
//! [`Settings`] is one such layer, with everything optional; [`Config`] is
//! what comes out. Nothing here starts anything.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use virtlens_model::judge::findings::Bounds;
use virtlens_probe::loader::Loader;

pub(crate) mod keys;
mod metadata;
mod values;

use self::keys::Known;
pub use self::metadata::Metadata;
pub use self::values::{Listen, LogFormat, LogLevel, Span, Thresholds, WebAuth};

/// Where the agent listens by default: a port that none of the agents beside it on a
/// node uses.
pub const DEFAULT_LISTEN: Listen = Listen::Every(9877);

/// Why the agent cannot be told this.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// An environment variable.
    #[error("{name}={value:?}: {reason}")]
    Environment {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file can be read, but not understood.
    #[error("configuration file {path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        reason: String,
    },
    /// The web configuration, or a file that it names.
    #[error("web configuration file {path}: {reason}")]
    Web {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// One layer of settings; what is `None` the layer below decides.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The address to serve on.
    #[serde(deserialize_with = "from_text")]
    pub listen: Option<Listen>,
    /// The file with TLS and users.
    pub web_config: Option<PathBuf>,
    /// Who says who may ask, beside the web configuration.
    #[serde(deserialize_with = "from_text")]
    pub web_auth: Option<WebAuth>,
    /// For how long a reading answers all who ask.
    #[serde(deserialize_with = "from_text")]
    pub min_age: Option<Span>,
    /// How long a VM that is gone keeps its final values.
    #[serde(deserialize_with = "from_text")]
    pub linger: Option<Span>,
    /// The form of the log.
    #[serde(deserialize_with = "from_text")]
    pub log_format: Option<LogFormat>,
    /// What is logged.
    #[serde(deserialize_with = "from_text")]
    pub log_level: Option<LogLevel>,
    /// The node's name.
    pub node_name: Option<String>,
    /// Where names of pods come from.
    #[serde(deserialize_with = "from_text")]
    pub metadata: Option<Metadata>,
    /// How the API server is reached from outside of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Where the kubelet is.
    pub kubelet_url: Option<String>,
    /// Certificates that the kubelet's is signed by.
    pub kubelet_ca: Option<PathBuf>,
    /// Whether the CPU time of each vCPU on each pCPU is shown.
    pub pcpu_series: Option<bool>,
    /// Whether nothing is left behind for the next agent.
    pub no_pin: Option<bool>,
    /// Who loads the BPF programs.
    #[serde(deserialize_with = "from_text")]
    pub loader: Option<Loader>,
    /// From where on something is a finding; only in the file.
    pub thresholds: Option<Thresholds>,
    /// Where the host's /proc and /sys are.
    pub root: Option<PathBuf>,
}

/// What the agent does.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The address to serve on.
    pub listen: Listen,
    /// The file with TLS and users; `None` is neither.
    pub web_config: Option<PathBuf>,
    /// Who says who may ask, beside the web configuration.
    pub web_auth: WebAuth,
    /// For how long a reading answers all who ask.
    pub min_age: Duration,
    /// How long a VM that is gone keeps its final values.
    pub linger: Duration,
    /// The form of the log.
    pub log_format: LogFormat,
    /// What is logged; `None` leaves it to the command.
    pub log_level: Option<LogLevel>,
    /// The node's name; `None` is the host's.
    pub node_name: Option<String>,
    /// Where names of pods come from; `None` is the API server, if one is known.
    pub metadata: Option<Metadata>,
    /// How the API server is reached; `None` is by the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where the kubelet is.
    pub kubelet_url: Option<String>,
    /// Certificates that the kubelet's is signed by; `None` are the service account's.
    pub kubelet_ca: Option<PathBuf>,
    /// Whether the CPU time of each vCPU on each pCPU is shown.
    pub pcpu_series: bool,
    /// Whether nothing is left behind for the next agent.
    pub no_pin: bool,
    /// Who loads the BPF programs.
    pub loader: Loader,
    /// From where on something is a finding.
    pub bounds: Bounds,
    /// Where the host's /proc and /sys are.
    pub root: PathBuf,
}

impl Settings {
    /// Reads the settings that the environment holds: `VIRTLENS_LISTEN` for
    /// `listen`, and so on. An empty variable is one that is not set.
    ///
    /// # Errors
    ///
    /// When a variable holds what its setting cannot be.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(Self {
            listen: from_variable("VIRTLENS_LISTEN", &variable)?,
            web_config: non_empty("VIRTLENS_WEB_CONFIG", &variable).map(PathBuf::from),
            web_auth: from_variable("VIRTLENS_WEB_AUTH", &variable)?,
            min_age: from_variable("VIRTLENS_MIN_AGE", &variable)?,
            linger: from_variable("VIRTLENS_LINGER", &variable)?,
            log_format: from_variable("VIRTLENS_LOG_FORMAT", &variable)?,
            log_level: from_variable("VIRTLENS_LOG_LEVEL", &variable)?,
            // What Kubernetes manifests by habit name the downward API's spec.nodeName.
            node_name: non_empty("VIRTLENS_NODE_NAME", &variable)
                .or_else(|| non_empty("NODE_NAME", &variable)),
            metadata: from_variable("VIRTLENS_METADATA", &variable)?,
            kubeconfig: non_empty("VIRTLENS_KUBECONFIG", &variable).map(PathBuf::from),
            kubelet_url: non_empty("VIRTLENS_KUBELET_URL", &variable),
            kubelet_ca: non_empty("VIRTLENS_KUBELET_CA", &variable).map(PathBuf::from),
            pcpu_series: from_variable("VIRTLENS_PCPU_SERIES", &variable)?,
            no_pin: from_variable("VIRTLENS_NO_PIN", &variable)?,
            loader: from_variable("VIRTLENS_LOADER", &variable)?,
            thresholds: None,
            root: non_empty("VIRTLENS_ROOT", &variable).map(PathBuf::from),
        })
    }

    /// Reads a configuration file: YAML with the names of [`Settings`].
    ///
    /// # Errors
    ///
    /// When it cannot be read or holds anything that is not known, naming the
    /// line.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::from_yaml(&text).map_err(|reason| ConfigError::Malformed {
            path: path.to_owned(),
            reason,
        })
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    ///
    /// When it holds anything that is not known, naming the line.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        // A file of comments alone is a null document.
        let settings: Result<Option<Known<Self>>, _> = serde_norway::from_str(text);
        let settings = settings.map_err(|error| error.to_string())?;
        Ok(settings.map_or_else(Self::default, |known| known.0))
    }

    /// These settings, and where they say nothing those of `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            web_config: self.web_config.or(below.web_config),
            web_auth: self.web_auth.or(below.web_auth),
            min_age: self.min_age.or(below.min_age),
            linger: self.linger.or(below.linger),
            log_format: self.log_format.or(below.log_format),
            log_level: self.log_level.or(below.log_level),
            node_name: self.node_name.or(below.node_name),
            metadata: self.metadata.or(below.metadata),
            kubeconfig: self.kubeconfig.or(below.kubeconfig),
            kubelet_url: self.kubelet_url.or(below.kubelet_url),
            kubelet_ca: self.kubelet_ca.or(below.kubelet_ca),
            pcpu_series: self.pcpu_series.or(below.pcpu_series),
            no_pin: self.no_pin.or(below.no_pin),
            loader: self.loader.or(below.loader),
            thresholds: self.thresholds.or(below.thresholds),
            root: self.root.or(below.root),
        }
    }
}

impl From<Settings> for Config {
    fn from(settings: Settings) -> Self {
        Self {
            listen: settings.listen.unwrap_or(DEFAULT_LISTEN),
            web_config: settings.web_config,
            web_auth: settings.web_auth.unwrap_or_default(),
            min_age: settings
                .min_age
                .map_or(Duration::from_secs(1), |span| span.0),
            // Two scrapes at Prometheus' default interval still see the end.
            linger: settings
                .linger
                .map_or(Duration::from_mins(1), |span| span.0),
            log_format: settings.log_format.unwrap_or_default(),
            log_level: settings.log_level,
            node_name: settings.node_name,
            metadata: settings.metadata,
            kubeconfig: settings.kubeconfig,
            kubelet_url: settings.kubelet_url,
            kubelet_ca: settings.kubelet_ca,
            pcpu_series: settings.pcpu_series.unwrap_or(false),
            no_pin: settings.no_pin.unwrap_or(false),
            loader: settings.loader.unwrap_or_default(),
            bounds: settings
                .thresholds
                .map_or_else(Bounds::default, |set| set.0),
            root: settings.root.unwrap_or_else(|| PathBuf::from("/")),
        }
    }
}

fn non_empty(name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    variable(name).filter(|value| !value.is_empty())
}

fn from_variable<T: FromStr<Err: Display>>(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<T>, ConfigError> {
    let Some(value) = non_empty(name, variable) else {
        return Ok(None);
    };
    value
        .parse()
        .map(Some)
        .map_err(|reason: T::Err| ConfigError::Environment {
            name: name.to_owned(),
            reason: reason.to_string(),
            value,
        })
}

fn from_text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    deserializer
        .deserialize_str(TextVisitor(PhantomData))
        .map(Some)
}

/// Parses while the deserializer still knows the line, so that the error does.
struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

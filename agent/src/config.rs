//! Configuration of the agent: flags take precedence over the environment, then the file,
//! then the defaults.
//!
//! [`Settings`] is one such layer, with every setting optional; [`Config`] is the result.
//! Nothing here starts anything.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use virtlens_export::Selection;
use virtlens_model::judge::findings::Bounds;
use virtlens_probe::loader::Loader;

pub(crate) mod keys;
mod metadata;
mod values;

use self::keys::StrictKeys;
pub use self::metadata::Metadata;
pub use self::values::{Listen, LogFormat, LogLevel, Span, Thresholds, Users, WebAuth};

/// Default address: a port that no other common agent on a node uses.
pub const DEFAULT_LISTEN: Listen = Listen::Every(9877);

/// A configuration error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line.
    #[error("{0}")]
    Usage(String),
    /// An environment variable.
    #[error("{name}={value:?}: {reason}")]
    Environment {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: String,
        /// The error in the value.
        reason: String,
    },
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is readable, but invalid.
    #[error("configuration file {path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error and its line.
        reason: String,
    },
    /// The web configuration, or a file that it names.
    #[error("web configuration file {path}: {reason}")]
    Web {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
}

/// One layer of settings; `None` defers to the layer below.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The address to serve on.
    #[serde(deserialize_with = "from_text")]
    pub listen: Option<Listen>,
    /// The file with TLS and users.
    pub web_config: Option<PathBuf>,
    /// Authorization of requests, in addition to the web configuration.
    #[serde(deserialize_with = "from_text")]
    pub web_auth: Option<WebAuth>,
    /// Users of the web configuration who may trace VMs.
    #[serde(deserialize_with = "from_text")]
    pub web_trace_users: Option<Users>,
    /// Time for which a reading is cached.
    #[serde(deserialize_with = "from_text")]
    pub min_age: Option<Span>,
    /// Time for which a VM that is gone keeps its final values.
    #[serde(deserialize_with = "from_text")]
    pub linger: Option<Span>,
    /// Log format.
    #[serde(deserialize_with = "from_text")]
    pub log_format: Option<LogFormat>,
    /// Log level.
    #[serde(deserialize_with = "from_text")]
    pub log_level: Option<LogLevel>,
    /// The node's name.
    pub node_name: Option<String>,
    /// Source of pod names.
    #[serde(deserialize_with = "from_text")]
    pub metadata: Option<Metadata>,
    /// The kubeconfig file for the API server, for use outside a pod.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the kubelet.
    pub kubelet_url: Option<String>,
    /// CA certificates that sign the kubelet's certificate.
    pub kubelet_ca: Option<PathBuf>,
    /// The exported metrics.
    #[serde(deserialize_with = "from_text")]
    pub metrics: Option<Selection>,
    /// Whether to leave nothing behind for the next agent.
    pub no_pin: Option<bool>,
    /// Loader of the BPF programs.
    #[serde(deserialize_with = "from_text")]
    pub loader: Option<Loader>,
    /// The directory to record in.
    pub record: Option<PathBuf>,
    /// Longest time between two recorded readings.
    #[serde(deserialize_with = "from_text")]
    pub record_interval: Option<Span>,
    /// Largest size of the recording, MiB.
    pub record_max_mib: Option<u64>,
    /// Largest age of recorded readings.
    #[serde(deserialize_with = "from_text")]
    pub record_max_age: Option<Span>,
    /// Largest size of all incidents, MiB; 0 = none are kept.
    pub incidents_max_mib: Option<u64>,
    /// Thresholds of findings; only in the file.
    pub thresholds: Option<Thresholds>,
    /// Root of the host's /proc and /sys.
    pub root: Option<PathBuf>,
}

/// Configuration of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The address to serve on.
    pub listen: Listen,
    /// The file with TLS and users; `None` = neither.
    pub web_config: Option<PathBuf>,
    /// Authorization of requests, in addition to the web configuration.
    pub web_auth: WebAuth,
    /// Users of the web configuration who may trace VMs.
    pub web_trace_users: Users,
    /// Time for which a reading is cached.
    pub min_age: Duration,
    /// Time for which a VM that is gone keeps its final values.
    pub linger: Duration,
    /// Log format.
    pub log_format: LogFormat,
    /// Log level; `None` = the command's default.
    pub log_level: Option<LogLevel>,
    /// The node's name; `None` = the host's name.
    pub node_name: Option<String>,
    /// Source of pod names; `None` = the API server, if one is known.
    pub metadata: Option<Metadata>,
    /// The kubeconfig file for the API server; `None` = the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the kubelet.
    pub kubelet_url: Option<String>,
    /// CA certificates that sign the kubelet's certificate; `None` = the service
    /// account's.
    pub kubelet_ca: Option<PathBuf>,
    /// The exported metrics.
    pub metrics: Selection,
    /// Whether to leave nothing behind for the next agent.
    pub no_pin: bool,
    /// Loader of the BPF programs.
    pub loader: Loader,
    /// The directory to record in; `None` = no recording.
    pub record: Option<PathBuf>,
    /// Longest time between two recorded readings.
    pub record_interval: Duration,
    /// Largest size of the recording, MiB.
    pub record_max_mib: u64,
    /// Largest age of recorded readings.
    pub record_max_age: Duration,
    /// Largest size of all incidents, MiB; 0 = none are kept.
    pub incidents_max_mib: u64,
    /// Thresholds of findings.
    pub bounds: Bounds,
    /// Root of the host's /proc and /sys.
    pub root: PathBuf,
}

impl Settings {
    /// Reads the settings from environment variables: `VIRTLENS_LISTEN` for `listen`, and
    /// so on. An empty variable counts as unset.
    ///
    /// # Errors
    ///
    /// If the value of a variable is invalid for its setting.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        Ok(Self {
            listen: from_variable("VIRTLENS_LISTEN", &variable)?,
            web_config: non_empty("VIRTLENS_WEB_CONFIG", &variable).map(PathBuf::from),
            web_auth: from_variable("VIRTLENS_WEB_AUTH", &variable)?,
            web_trace_users: from_variable("VIRTLENS_WEB_TRACE_USERS", &variable)?,
            min_age: from_variable("VIRTLENS_MIN_AGE", &variable)?,
            linger: from_variable("VIRTLENS_LINGER", &variable)?,
            log_format: from_variable("VIRTLENS_LOG_FORMAT", &variable)?,
            log_level: from_variable("VIRTLENS_LOG_LEVEL", &variable)?,
            // Kubernetes manifests conventionally use this name for spec.nodeName from
            // the downward API.
            node_name: non_empty("VIRTLENS_NODE_NAME", &variable)
                .or_else(|| non_empty("NODE_NAME", &variable)),
            metadata: from_variable("VIRTLENS_METADATA", &variable)?,
            kubeconfig: non_empty("VIRTLENS_KUBECONFIG", &variable).map(PathBuf::from),
            kubelet_url: non_empty("VIRTLENS_KUBELET_URL", &variable),
            kubelet_ca: non_empty("VIRTLENS_KUBELET_CA", &variable).map(PathBuf::from),
            metrics: from_variable("VIRTLENS_METRICS", &variable)?,
            no_pin: from_variable("VIRTLENS_NO_PIN", &variable)?,
            loader: from_variable("VIRTLENS_LOADER", &variable)?,
            record: non_empty("VIRTLENS_RECORD", &variable).map(PathBuf::from),
            record_interval: from_variable("VIRTLENS_RECORD_INTERVAL", &variable)?,
            record_max_mib: from_variable("VIRTLENS_RECORD_MAX_MIB", &variable)?,
            record_max_age: from_variable("VIRTLENS_RECORD_MAX_AGE", &variable)?,
            incidents_max_mib: from_variable("VIRTLENS_INCIDENTS_MAX_MIB", &variable)?,
            thresholds: None,
            root: non_empty("VIRTLENS_ROOT", &variable).map(PathBuf::from),
        })
    }

    /// Reads a configuration file: YAML with the names of [`Settings`].
    ///
    /// # Errors
    ///
    /// If it cannot be read or contains anything unknown, with the line.
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

    /// Parses the text of a configuration file.
    ///
    /// # Errors
    ///
    /// If it contains anything unknown, with the line.
    pub fn from_yaml(text: &str) -> Result<Self, String> {
        // A file of comments alone is a null document.
        let settings: Result<Option<StrictKeys<Self>>, _> = serde_norway::from_str(text);
        let settings = settings.map_err(|error| error.to_string())?;
        Ok(settings.map_or_else(Self::default, |known| known.0))
    }

    /// Merges two layers: settings that are `None` here come from `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            web_config: self.web_config.or(below.web_config),
            web_auth: self.web_auth.or(below.web_auth),
            web_trace_users: self.web_trace_users.or(below.web_trace_users),
            min_age: self.min_age.or(below.min_age),
            linger: self.linger.or(below.linger),
            log_format: self.log_format.or(below.log_format),
            log_level: self.log_level.or(below.log_level),
            node_name: self.node_name.or(below.node_name),
            metadata: self.metadata.or(below.metadata),
            kubeconfig: self.kubeconfig.or(below.kubeconfig),
            kubelet_url: self.kubelet_url.or(below.kubelet_url),
            kubelet_ca: self.kubelet_ca.or(below.kubelet_ca),
            metrics: self.metrics.or(below.metrics),
            no_pin: self.no_pin.or(below.no_pin),
            loader: self.loader.or(below.loader),
            record: self.record.or(below.record),
            record_interval: self.record_interval.or(below.record_interval),
            record_max_mib: self.record_max_mib.or(below.record_max_mib),
            record_max_age: self.record_max_age.or(below.record_max_age),
            incidents_max_mib: self.incidents_max_mib.or(below.incidents_max_mib),
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
            web_trace_users: settings.web_trace_users.unwrap_or_default(),
            min_age: settings
                .min_age
                .map_or(Duration::from_secs(1), |span| span.0),
            // Two scrapes at Prometheus' default interval still see the final values.
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
            metrics: settings.metrics.unwrap_or_default(),
            no_pin: settings.no_pin.unwrap_or(false),
            loader: settings.loader.unwrap_or_default(),
            record: settings.record,
            record_interval: settings
                .record_interval
                .map_or(Duration::from_secs(10), |span| span.0),
            record_max_mib: settings.record_max_mib.unwrap_or(256),
            record_max_age: settings
                .record_max_age
                .map_or(Duration::from_hours(24), |span| span.0),
            incidents_max_mib: settings.incidents_max_mib.unwrap_or(64),
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

/// Parses within the deserializer, so that errors contain the line.
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

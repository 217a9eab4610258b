//! Access to Kubernetes: names of pods and their age, and authorization of clients.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use virtlens_kube::{Cluster, Kubelet, Names, PodsState, Reviewer};
use virtlens_model::fleet::Fleet;
use virtlens_model::snapshot::Source;

use crate::config::{Config, ConfigError, Metadata, WebAuth};

const SET_NODE_NAME: &str = "set the node's name with --node-name, or in the manifest with \
                             NODE_NAME from the field spec.nodeName";

/// Name of this source in rows and labels.
const SOURCE: &str = "pods";
/// Time to wait for names, in one-shot commands and before the first reading of the
/// agent.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the source of names that `config` selects for the node called `node`; `None`
/// if it selects none and this is not a pod (`in_pod`).
///
/// In a pod the host name is the pod's. A watch of a node that does not exist finds
/// nothing and does not fail, so the node's name must be configured there.
///
/// # Errors
///
/// If it selects a kubelet without its URL, or the API server in a pod without the node's
/// name.
pub fn source(
    config: &Config,
    node: &str,
    in_pod: bool,
) -> Result<Option<virtlens_kube::Source>, ConfigError> {
    let cluster = cluster(config);
    let is_reachable = in_pod || cluster != Cluster::Inside;
    let is_nameless = in_pod && config.node_name.is_none();
    Ok(match &config.metadata {
        None if is_reachable && is_nameless => {
            tracing::warn!("pod names are not available: {SET_NODE_NAME}");
            None
        }
        Some(Metadata::ApiServer) if is_nameless => {
            return Err(ConfigError::Usage(format!(
                "--metadata apiserver: {SET_NODE_NAME}"
            )));
        }
        None if is_reachable => Some(api_server(cluster, node)),
        Some(Metadata::ApiServer) => Some(api_server(cluster, node)),
        Some(Metadata::Kubelet) => {
            let url = config.kubelet_url.clone().ok_or_else(|| {
                let text = "--metadata kubelet: set the kubelet's address with --kubelet-url, such \
                            as https://10.0.0.7:10250";
                ConfigError::Usage(text.to_owned())
            })?;
            Some(virtlens_kube::Source::Kubelet(Kubelet {
                url: with_brackets(&url),
                ca_file: config.kubelet_ca.clone(),
                token_file: None,
            }))
        }
        Some(Metadata::File(path)) => Some(virtlens_kube::Source::File {
            path: path.clone(),
            node: node.to_owned(),
        }),
        None | Some(Metadata::None) => None,
    })
}

/// Adds the brackets that a URL requires around an IPv6 address. A manifest can put a node's
/// address into a URL only as it is.
fn with_brackets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (rest, String::new()),
    };
    match authority.rsplit_once(':') {
        Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => {
            format!("{scheme}://[{host}]:{port}{path}")
        }
        _ => url.to_owned(),
    }
}

/// Returns the reviewer of clients' tokens, if reviews are enabled.
///
/// # Errors
///
/// If its thread cannot be started.
pub fn reviewer(config: &Config) -> std::io::Result<Option<Reviewer>> {
    (config.web_auth == WebAuth::Kubernetes)
        .then(|| Reviewer::start(cluster(config)))
        .transpose()
}

fn cluster(config: &Config) -> Cluster {
    let file = config.kubeconfig.clone();
    file.map_or(Cluster::Inside, Cluster::Kubeconfig)
}

fn api_server(cluster: Cluster, node: &str) -> virtlens_kube::Source {
    virtlens_kube::Source::ApiServer {
        cluster,
        node: node.to_owned(),
    }
}

/// The present names of the node's pods.
#[derive(Debug)]
pub(crate) struct PodNames {
    names: Names,
    mode: &'static str,
    since: Instant,
    state: Option<PodsState>,
}

impl PodNames {
    pub(crate) fn start(source: virtlens_kube::Source) -> anyhow::Result<Self> {
        Ok(Self {
            mode: source.name(),
            names: Names::start(source).context("cannot start the thread for pod names")?,
            since: Instant::now(),
            state: None,
        })
    }

    /// Waits for the first names, for a limited time.
    pub(crate) fn settle(&self) {
        self.names
            .wait(FIRST_ANSWER_TIMEOUT.saturating_sub(self.since.elapsed()));
    }

    /// Passes the present names of pods to the fleet.
    pub(crate) fn update(&mut self, fleet: &mut Fleet) {
        let state = self.names.read();
        fleet.call(Arc::clone(&state.pods));
        self.state = Some(state);
    }

    /// State of the source as of the last read.
    pub(crate) fn row(&self) -> Source {
        let state = self.state.as_ref();
        let age = state.and_then(|state| state.age);
        let failure = state.map_or("", |state| &state.failure);
        let reason = match (failure, age) {
            ("", None) => "waiting for the first answer; pod names are not available until then",
            (failure, _) => failure,
        };
        // A source that never answered has been silent since the first request.
        let age = age.unwrap_or_else(|| self.since.elapsed());
        Source {
            name: SOURCE,
            up: reason.is_empty(),
            mode: self.mode,
            reason: reason.to_owned(),
            duration_ns: None,
            age_ns: Some(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Number of failures.
    pub(crate) fn failures(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cluster, Config, source, with_brackets};
    use crate::config::{Metadata, Settings};

    fn config(settings: Settings) -> Config {
        settings.into()
    }

    fn mode(mut settings: Settings, in_pod: bool) -> Option<&'static str> {
        settings.node_name = Some("node-a".to_owned());
        let source = source(&config(settings), "node-a", in_pod);
        source.expect("it is complete").map(|source| source.name())
    }

    #[test]
    fn pod_names_source_defaults_to_reachable_api_server() {
        assert_eq!(mode(Settings::default(), false), None);
        assert_eq!(mode(Settings::default(), true), Some("apiserver"));
        let kubeconfig = Settings {
            kubeconfig: Some("/a".into()),
            ..Settings::default()
        };
        assert_eq!(mode(kubeconfig, false), Some("apiserver"));
    }

    #[test]
    fn configured_pod_names_source_is_used() {
        for (text, expected) in [
            ("none", None),
            ("apiserver", Some("apiserver")),
            ("file:/pods.json", Some("file")),
        ] {
            let settings = Settings {
                metadata: Some(text.parse().expect("a source")),
                ..Settings::default()
            };
            assert_eq!(mode(settings, true), expected, "{text}");
        }
    }

    #[test]
    fn pod_names_in_a_pod_require_node_name() {
        let with = |metadata| {
            let settings = Settings {
                metadata,
                ..Settings::default()
            };
            source(&config(settings), "the-pod", true)
        };
        assert_eq!(with(None).expect("it goes without"), None);
        let error = with(Some(Metadata::ApiServer)).expect_err("it is nameless");
        assert!(error.to_string().contains("NODE_NAME"), "{error}");
    }

    #[test]
    fn kubelet_source_requires_url() {
        let settings = |url: Option<&str>| Settings {
            metadata: Some(Metadata::Kubelet),
            kubelet_url: url.map(str::to_owned),
            ..Settings::default()
        };
        let error = source(&config(settings(None)), "a", true).expect_err("no address");
        assert!(error.to_string().contains("--kubelet-url"), "{error}");
        assert_eq!(
            mode(settings(Some("https://a:10250")), false),
            Some("kubelet")
        );
    }

    #[test]
    fn ipv6_address_in_a_url_gets_brackets() {
        for (given, expected) in [
            ("https://fd00::7:10250", "https://[fd00::7]:10250"),
            ("https://fd00::7:10250/base", "https://[fd00::7]:10250/base"),
            ("https://[fd00::7]:10250", "https://[fd00::7]:10250"),
            ("https://10.0.0.7:10250", "https://10.0.0.7:10250"),
            ("https://node-a:10250/", "https://node-a:10250/"),
            ("https://node-a", "https://node-a"),
            ("node-a:10250", "node-a:10250"),
        ] {
            assert_eq!(with_brackets(given), expected);
        }
    }

    #[test]
    fn unknown_pod_names_source_is_an_error() {
        for text in ["", "file:", "cri", "APISERVER"] {
            let error = text.parse::<Metadata>().expect_err(text);
            assert!(error.contains("expected apiserver, kubelet"), "{error}");
        }
    }

    #[test]
    fn kubeconfig_in_a_pod_overrides_service_account() {
        let settings = Settings {
            kubeconfig: Some("/a".into()),
            node_name: Some("a".to_owned()),
            ..Settings::default()
        };
        let found = source(&config(settings), "a", true).expect("it is complete");
        let virtlens_kube::Source::ApiServer { cluster, node } = found.expect("a source") else {
            panic!("another source");
        };
        assert_eq!((cluster, &*node), (Cluster::Kubeconfig("/a".into()), "a"));
    }
}

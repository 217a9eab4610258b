//! The agents of a cluster: found through the API server, and asked through it.
//!
//! ```text
//! kubeconfig ─► API server ─► pods of the agents ─► a tunnel (or the proxy) ─► agent
//! ```
//!
//! An agent gets a user's token only on demand: an agent is close to root on its node, and
//! whoever took over that node would have the token.

mod ask;
mod discover;
mod pods;

use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime::Runtime;
use tower::{BoxError, ServiceBuilder};

pub use self::ask::{Pace, histories, incidents, poll, snapshots};
pub use self::discover::{Found, Scope};
use self::pods::AgentPod;
use crate::cluster::{chain, connect, connect_unbounded};
use crate::remote::tunnel::Tunnels;
use crate::remote::{Agent, Remote, Unanswered, runtime, token_in};

/// A cluster and its agents, and the credentials of their reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// Kubeconfig file; `None` = `$KUBECONFIG`, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` = its current one.
    pub context: Option<String>,
    /// Namespace of the agents.
    pub agents_namespace: String,
    /// Connection to an agent.
    pub route: Route,
}

/// Connection to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A forwarded port: the agent decides on each request.
    Tunnel(TunnelOptions),
    /// The API server's proxy, which removes credentials for the agent from requests.
    Proxy,
}

/// Credentials for agents behind a forwarded port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TunnelOptions {
    /// The token for the agents.
    pub token: Token,
    /// CA certificates that sign the agents'; `None` = those of the system.
    pub ca_file: Option<PathBuf>,
    /// Files with a client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the agents' certificates; `None` = `virtlens.NAMESPACE.svc`.
    pub server_name: Option<String>,
    /// Whether any certificate is accepted.
    pub accepts_any_certificate: bool,
}

/// The token for the agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Token {
    /// None.
    #[default]
    None,
    /// The content of a file.
    File(PathBuf),
    /// A token of a service account, which the API server issues for an hour.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The kubeconfig's token.
    Own,
}

/// A node and its agent.
#[derive(Debug, Clone)]
pub struct NodeAgent {
    /// Name of the node.
    pub node: String,
    /// The agent.
    pub remote: Remote,
}

/// A cluster with agents.
pub struct Fleet {
    runtime: Arc<Runtime>,
    config: Config,
    client: Client,
    access: ClusterAccess,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fleet").field(&self.access).finish()
    }
}

impl Fleet {
    /// Reads the kubeconfig. Its program for credentials may run; no request is sent.
    ///
    /// # Errors
    ///
    /// If a file is missing or invalid, or the context is unknown.
    pub fn open(access: ClusterAccess) -> Result<Self, Unanswered> {
        let runtime = runtime()?;
        let invalid =
            |error: &dyn std::error::Error| Unanswered(format!("kubeconfig: {}", chain(error)));
        let read = match &access.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = read.map_err(|error| invalid(&error))?;
        let options = KubeConfigOptions {
            context: access.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = runtime.block_on(Config::from_custom_kubeconfig(file, &options));
        let config = config.map_err(|error| invalid(&error))?;
        let client = {
            let _inside = runtime.enter();
            connect(config.clone()).map_err(|error| Unanswered(error.to_string()))?
        };
        Ok(Self {
            runtime,
            config,
            client,
            access,
        })
    }

    /// The namespace of the kubeconfig's context.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// Finds the agents of some nodes. Several agents of a node are those of a rollout; one
    /// of them is returned.
    ///
    /// # Errors
    ///
    /// If the API server does not answer or refuses a request, or if the scope has no agent.
    pub fn find(&self, scope: &Scope) -> Result<Found, Unanswered> {
        self.runtime.block_on(async {
            let (pods, missing) = self.agent_pods(scope).await?;
            let login = self.login().await?;
            let agents = pods.into_iter().map(|pod| self.agent(pod, &login));
            let agents = agents.collect::<Result<_, _>>()?;
            Ok(Found { agents, missing })
        })
    }

    /// The credentials for the agents.
    async fn login(&self) -> Result<AuthInfo, Unanswered> {
        let Route::Tunnel(options) = &self.access.route else {
            return Ok(AuthInfo::default());
        };
        let text = |file: &PathBuf| file.to_string_lossy().into_owned();
        let readable = |file: &PathBuf| {
            let found = std::fs::metadata(file);
            found.map_err(|error| Unanswered(format!("{}: {error}", file.display())))
        };
        let mut login = match &options.token {
            Token::None => AuthInfo::default(),
            Token::File(file) => token_in(file)?,
            Token::ServiceAccount { namespace, name } => AuthInfo {
                token: Some(self.token_of(namespace, name).await?.into()),
                ..AuthInfo::default()
            },
            Token::Own => self.own_token()?,
        };
        if let Some((certificate, key)) = &options.identity {
            readable(certificate)?;
            readable(key)?;
            login.client_certificate = Some(text(certificate));
            login.client_key = Some(text(key));
        }
        Ok(login)
    }

    /// The kubeconfig's token, without its other credentials.
    fn own_token(&self) -> Result<AuthInfo, Unanswered> {
        let own = &self.config.auth_info;
        let has_token = own.token.is_some()
            || own.token_file.is_some()
            || own.exec.is_some()
            || own.auth_provider.is_some();
        if !has_token {
            let text = "the kubeconfig's user has no token; use --service-account or --token-file";
            return Err(Unanswered(text.to_owned()));
        }
        Ok(AuthInfo {
            token: own.token.clone(),
            token_file: own.token_file.clone(),
            exec: own.exec.clone(),
            auth_provider: own.auth_provider.clone(),
            ..AuthInfo::default()
        })
    }

    fn agent(&self, pod: AgentPod, login: &AuthInfo) -> Result<NodeAgent, Unanswered> {
        let AgentPod {
            node,
            name,
            port,
            scheme,
        } = pod;
        let namespace = &self.access.agents_namespace;
        let broken = |error: &dyn std::error::Error| Unanswered(chain(error));
        let client = match &self.access.route {
            Route::Proxy => {
                let server = self.config.cluster_url.to_string();
                let server = server.trim_end_matches('/');
                let url = format!(
                    "{server}/api/v1/namespaces/{namespace}/pods/{scheme}:{name}:{port}/proxy"
                );
                let mut config = self.config.clone();
                config.cluster_url = url.parse().map_err(|error| broken(&error))?;
                connect_unbounded(config).map_err(|error| broken(&error))?
            }
            Route::Tunnel(options) => {
                let service = format!("virtlens.{namespace}.svc");
                let server_name = options.server_name.clone().unwrap_or(service);
                let url = format!("{scheme}://{server_name}:{port}");
                let mut config = Config::new(url.parse().map_err(|error| broken(&error))?);
                config.root_cert_file.clone_from(&options.ca_file);
                config.accept_invalid_certs = options.accepts_any_certificate;
                config.auth_info = login.clone();
                let tunnels = Tunnels {
                    client: self.client.clone(),
                    namespace: namespace.clone(),
                    pod: name,
                    port,
                };
                through(&config, tunnels).map_err(|error| broken(&error))?
            }
        };
        let remedy = match self.access.route {
            Route::Proxy => "; leave out --proxy, and name a token with --service-account",
            Route::Tunnel(_) => "; name a token with --service-account or --token-file",
        };
        let agent = Agent::new(client, format!("the agent on {node}"), remedy);
        let remote = Remote::on(Arc::clone(&self.runtime), agent);
        Ok(NodeAgent { node, remote })
    }
}

/// A client whose connections are tunnels.
fn through(config: &Config, tunnels: Tunnels) -> kube::Result<Client> {
    let connector = config.rustls_https_connector_with_connector(tunnels)?;
    let http: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, "default"))
}

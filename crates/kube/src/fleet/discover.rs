//! Finds the pods of agents, and tokens for them.

use std::collections::BTreeSet;

use http::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::pods::{AgentPod, WirePod, WirePods, by_node};
use super::{Fleet, NodeAgent};
use crate::cluster::chain;
use crate::remote::Unanswered;

/// Label of the agents' pods, as the chart sets it.
const LABEL: &str = "app.kubernetes.io/name=virtlens";

/// Pods per page of a list.
const PAGE: u32 = 500;

/// Limit on the pages of a list: clusters of the largest supported size fit.
const MAX_PAGES: usize = 400;

/// Lifetime of a service account's token, s.
const TOKEN_FOR: u32 = 3600;

/// The nodes whose agents are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The node of a pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The nodes with pods of a namespace.
    Namespace(String),
    /// A node.
    Node(String),
    /// All nodes with an agent.
    All,
}

/// The agents of a scope.
#[derive(Debug)]
pub struct Found {
    /// By node.
    pub agents: Vec<NodeAgent>,
    /// Nodes of the scope without a running agent.
    pub missing: Vec<String>,
}

impl Fleet {
    /// The agents' pods of a scope, by node, and its nodes without one.
    pub(super) async fn agent_pods(
        &self,
        scope: &Scope,
    ) -> Result<(Vec<AgentPod>, Vec<String>), Unanswered> {
        let (nodes, selector) = match scope {
            Scope::All => (None, None),
            Scope::Node(node) => (Some(BTreeSet::from([node.clone()])), Some(node.clone())),
            Scope::Namespace(namespace) => (Some(self.nodes_of(namespace).await?), None),
            Scope::Pod { namespace, name } => {
                let path = format!("/api/v1/namespaces/{}/pods/{}", part(namespace), part(name));
                let pod: WirePod = self.get(&path).await?;
                let node = pod
                    .spec
                    .node_name
                    .ok_or_else(|| Unanswered(format!("pod {namespace}/{name} has no node yet")))?;
                (Some(BTreeSet::from([node.clone()])), Some(node))
            }
        };
        let namespace = &self.access.agents_namespace;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("labelSelector", LABEL);
        if let Some(node) = selector {
            query.append_pair("fieldSelector", &format!("spec.nodeName={node}"));
        }
        let pods = self.list(namespace, &query.finish()).await?;
        let mut agents = by_node(pods);
        if agents.is_empty() && nodes.is_none() {
            return Err(Unanswered(format!(
                "no running agent in namespace {namespace}; name another one with \
                 --agents-namespace"
            )));
        }
        let missing = match nodes {
            None => Vec::new(),
            Some(nodes) => {
                agents.retain(|node, _| nodes.contains(node));
                let missing = nodes.into_iter();
                missing.filter(|node| !agents.contains_key(node)).collect()
            }
        };
        if let ([only, ..], true) = (missing.as_slice(), agents.is_empty()) {
            return Err(Unanswered(format!(
                "no running agent on {only} in namespace {namespace}; name another namespace with \
                 --agents-namespace"
            )));
        }
        Ok((agents.into_values().collect(), missing))
    }

    /// Nodes with running pods of a namespace.
    async fn nodes_of(&self, namespace: &str) -> Result<BTreeSet<String>, Unanswered> {
        let pods = self.list(namespace, "").await?;
        let running = pods.into_iter().filter(WirePod::is_running);
        let nodes: BTreeSet<String> = running.filter_map(|pod| pod.spec.node_name).collect();
        if nodes.is_empty() {
            return Err(Unanswered(format!(
                "no running pod in namespace {namespace}"
            )));
        }
        Ok(nodes)
    }

    /// Names of the pods of a namespace, for completion.
    ///
    /// # Errors
    ///
    /// If the API server does not answer, or refuses the request.
    pub fn pods(&self, namespace: &str) -> Result<Vec<String>, Unanswered> {
        self.names(&format!("/api/v1/namespaces/{}/pods", part(namespace)))
    }

    /// Names of the namespaces, for completion.
    ///
    /// # Errors
    ///
    /// If the API server does not answer, or refuses the request.
    pub fn namespaces(&self) -> Result<Vec<String>, Unanswered> {
        self.names("/api/v1/namespaces")
    }

    fn names(&self, path: &str) -> Result<Vec<String>, Unanswered> {
        let items = self.runtime.block_on(self.pages(path, ""))?;
        Ok(items.into_iter().map(|item| item.metadata.name).collect())
    }

    async fn list(&self, namespace: &str, query: &str) -> Result<Vec<WirePod>, Unanswered> {
        let path = format!("/api/v1/namespaces/{}/pods", part(namespace));
        self.pages(&path, query).await
    }

    async fn pages(&self, path: &str, query: &str) -> Result<Vec<WirePod>, Unanswered> {
        let mut pods = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut target = format!("{path}?limit={PAGE}");
            if !query.is_empty() {
                target = format!("{target}&{query}");
            }
            if let Some(next) = &next {
                target = format!("{target}&continue={}", part(next));
            }
            let page: WirePods = self.get(&target).await?;
            pods.extend(page.items);
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(pods);
            }
        }
        Err(Unanswered(format!("the list {path} has too many pages")))
    }

    /// A token of a service account.
    pub(super) async fn token_of(&self, namespace: &str, name: &str) -> Result<String, Unanswered> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            part(namespace),
            part(name)
        );
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": TOKEN_FOR },
        });
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| Unanswered(error.to_string()))?;
        let issued: Issued = self.request(request).await?;
        Ok(issued.status.token)
    }

    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Unanswered> {
        let request = Request::get(target).body(Vec::new());
        let request = request.map_err(|error| Unanswered(error.to_string()))?;
        self.request(request).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<T, Unanswered> {
        let server = &self.config.cluster_url;
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request(request));
        match answered.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => {
                let (code, text) = (status.code, &status.message);
                let text = format!("the API server refused the request ({code}): {text}");
                Err(Unanswered(text))
            }
            Ok(Err(error)) => Err(Unanswered(format!(
                "cannot query the API server at {server}: {}",
                chain(&error)
            ))),
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                let text = format!("the API server at {server} has not answered in {seconds} s");
                Err(Unanswered(text))
            }
        }
    }
}

/// An API server has as much time for a page of a list.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Text as a part of a path or of a query.
fn part(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[derive(Debug, Deserialize)]
struct Issued {
    status: IssuedToken,
}

#[derive(Debug, Deserialize)]
struct IssuedToken {
    token: String,
}

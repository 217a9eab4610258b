//! Pods as the API server describes them: those of agents, and their ports.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Name of the agents' port.
const PORT_NAME: &str = "metrics";

/// The agents' port, if the pod does not name it.
const PORT: u16 = 9877;

/// The pod of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentPod {
    pub(super) node: String,
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) scheme: &'static str,
}

/// The agent of each node: a ready one if there are several.
pub(super) fn by_node(pods: Vec<WirePod>) -> BTreeMap<String, AgentPod> {
    let mut agents = BTreeMap::new();
    let (ready, other): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .filter(WirePod::is_running)
        .partition(WirePod::is_ready);
    for pod in other.into_iter().chain(ready) {
        if let Some(agent) = pod.agent() {
            agents.insert(agent.node.clone(), agent);
        }
    }
    agents
}

#[derive(Debug, Deserialize)]
pub(super) struct WirePods {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(default)]
    pub(super) items: Vec<WirePod>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ListMeta {
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WirePod {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) node_name: Option<String>,
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container {
    ports: Vec<Port>,
    liveness_probe: Option<Probe>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Port {
    name: String,
    container_port: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Probe {
    http_get: Option<HttpGet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HttpGet {
    scheme: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl WirePod {
    pub(super) fn is_running(&self) -> bool {
        self.status.phase == "Running" && self.metadata.deletion_timestamp.is_none()
    }

    fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// The agent in this pod: the chart's probe has the scheme of its port.
    fn agent(self) -> Option<AgentPod> {
        let containers = self.spec.containers.iter();
        let mut ports = containers.flat_map(|container| {
            let ports = container.ports.iter();
            ports.map(move |port| (container, port))
        });
        let named = ports.find(|(_, port)| port.name == PORT_NAME);
        let probe =
            named.and_then(|(container, _)| container.liveness_probe.as_ref()?.http_get.as_ref());
        let is_https = probe.is_some_and(|probe| probe.scheme == "HTTPS");
        Some(AgentPod {
            node: self.spec.node_name?,
            name: self.metadata.name,
            port: named.map_or(PORT, |(_, port)| port.container_port),
            scheme: if is_https { "https" } else { "http" },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AgentPod, WirePods, by_node};

    fn agents(json: &str) -> Vec<AgentPod> {
        let pods: WirePods = serde_json::from_str(json).expect("a list of pods");
        by_node(pods.items).into_values().collect()
    }

    #[test]
    fn ready_agent_of_each_node_is_chosen_with_its_port() {
        let pod = |name: &str, node: &str, ready: &str, rest: &str| {
            format!(
                r#"{{"metadata": {{"name": "{name}"{rest}}},
                     "spec": {{"nodeName": "{node}", "containers": [{{
                       "ports": [{{"name": "metrics", "containerPort": 9900}}],
                       "livenessProbe": {{"httpGet": {{"scheme": "HTTPS", "port": "metrics"}}}}}}]}},
                     "status": {{"phase": "Running", "conditions": [{{"type": "Ready", "status": "{ready}"}}]}}}}"#
            )
        };
        let gone = r#", "deletionTimestamp": "2026-11-27T00:00:00Z""#;
        let list = [
            pod("virtlens-a", "node-a", "True", ""),
            pod("virtlens-b", "node-a", "False", ""),
            pod("virtlens-c", "node-b", "True", gone),
            pod("virtlens-d", "node-b", "False", ""),
        ];
        let found = agents(&format!(r#"{{"items": [{}]}}"#, list.join(",")));
        let names: Vec<_> = found.iter().map(|pod| (&*pod.node, &*pod.name)).collect();
        assert_eq!(names, [("node-a", "virtlens-a"), ("node-b", "virtlens-d")]);
        assert_eq!((found[0].port, found[0].scheme), (9900, "https"));
    }

    #[test]
    fn pod_without_port_and_probe_gets_defaults() {
        let found = agents(
            r#"{"items": [{"metadata": {"name": "x"}, "spec": {"nodeName": "n"},
                           "status": {"phase": "Running"}},
                          {"metadata": {"name": "pending"}, "status": {"phase": "Pending"}}]}"#,
        );
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].port, found[0].scheme), (9877, "http"));
    }
}

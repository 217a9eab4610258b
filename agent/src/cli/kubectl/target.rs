//! The agents to ask, and the VMs to show.

use std::cell::RefCell;
use std::collections::BTreeSet;

use virtlens_kube::{
    ClusterAccess, Fleet, NodeAgent, Route, Scope, Token, TunnelOptions, Unanswered,
};

use super::args::{ClusterArgs, LoginArgs};
use crate::config::ConfigError;
use crate::term::printable;

/// Namespace in which docs/install.md installs the agents.
const AGENTS_NAMESPACE: &str = "virtlens";

/// The agents to ask, and the VMs to show.
pub(super) struct Target {
    pub(super) agents: Vec<NodeAgent>,
    /// Nodes without a running agent.
    pub(super) missing: Vec<String>,
    /// The namespace to show; `None` shows all.
    pub(super) namespace: Option<String>,
    /// The pod to show, as NAMESPACE/POD; `None` shows all.
    pub(super) pod: Option<String>,
    /// What was reported.
    pub(super) reported: RefCell<BTreeSet<String>>,
}

impl Target {
    /// Reports the nodes without an agent.
    pub(super) fn report_missing(&self) {
        for node in &self.missing {
            self.report(node, "no running agent");
        }
    }

    /// Reports the reason that a node is not shown, once.
    pub(super) fn report(&self, node: &str, reason: &str) {
        let line = format!("virtlens: {}: {}", printable(node), printable(reason));
        if self.reported.borrow_mut().insert(line.clone()) {
            eprintln!("{line}");
        }
    }

    /// The successful ones of the answers with their agents; the others are reported, too.
    pub(super) fn answered<T>(
        &self,
        answers: Vec<Result<T, Unanswered>>,
    ) -> anyhow::Result<Vec<(&NodeAgent, T)>> {
        let mut answered = Vec::new();
        for (agent, answer) in self.agents.iter().zip(answers) {
            match answer {
                Ok(answer) => answered.push((agent, answer)),
                // An error of the only agent is that of the command.
                Err(error) if self.agents.len() == 1 => return Err(error.into()),
                Err(error) => self.report(&agent.node, &error.to_string()),
            }
        }
        anyhow::ensure!(!answered.is_empty(), "no agent answered");
        Ok(answered)
    }

    /// Whether all nodes are among `shown` answers.
    pub(super) fn is_complete(&self, shown: usize) -> bool {
        self.missing.is_empty() && shown == self.agents.len()
    }
}

/// Finds the agents for a pod, or for the pods of a scope.
pub(super) fn find(args: &ClusterArgs, pod: Option<&str>) -> anyhow::Result<Target> {
    let fleet = Fleet::open(access(args)?)?;
    let named = |name: &str| name.to_owned();
    let (scope, namespace, pod) = match (pod, &args.node) {
        (Some(pod), _) => {
            let pod = pod.trim_start_matches("pods/").trim_start_matches("pod/");
            let default = args.namespace.as_deref().unwrap_or(fleet.namespace());
            let (namespace, name) = pod.split_once('/').unwrap_or((default, pod));
            let pod = Some(format!("{namespace}/{name}"));
            let (namespace, name) = (named(namespace), named(name));
            (Scope::Pod { namespace, name }, None, pod)
        }
        (None, Some(node)) => (Scope::Node(node.clone()), args.namespace.clone(), None),
        (None, None) if args.all_namespaces => (Scope::All, None, None),
        (None, None) => {
            let namespace = args.namespace.as_deref().unwrap_or(fleet.namespace());
            let namespace = named(namespace);
            (Scope::Namespace(namespace.clone()), Some(namespace), None)
        }
    };
    let found = fleet.find(&scope)?;
    Ok(Target {
        agents: found.agents,
        missing: found.missing,
        namespace,
        pod,
        reported: RefCell::default(),
    })
}

pub(super) fn access(args: &ClusterArgs) -> Result<ClusterAccess, ConfigError> {
    let LoginArgs {
        token_file,
        service_account,
        own_token,
        ca_file,
        client_certificate,
        client_key,
        server_name,
        insecure_skip_tls_verify,
    } = &args.login;
    let token = match (token_file, service_account) {
        (Some(file), _) => Token::File(file.clone()),
        (None, Some(account)) => {
            let (namespace, name) = account.split_once('/').ok_or_else(|| {
                let text = "--service-account: expected NAMESPACE/NAME";
                ConfigError::Usage(text.to_owned())
            })?;
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            Token::ServiceAccount { namespace, name }
        }
        (None, None) if *own_token => Token::Own,
        (None, None) => Token::None,
    };
    let route = if args.proxy {
        Route::Proxy
    } else {
        Route::Tunnel(TunnelOptions {
            token,
            ca_file: ca_file.clone(),
            identity: client_certificate.clone().zip(client_key.clone()),
            server_name: server_name.clone(),
            accepts_any_certificate: *insecure_skip_tls_verify,
        })
    };
    let variable = || std::env::var("VIRTLENS_AGENTS_NAMESPACE").ok();
    let namespace = args.agents_namespace.clone().or_else(variable);
    Ok(ClusterAccess {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        agents_namespace: namespace.unwrap_or_else(|| AGENTS_NAMESPACE.to_owned()),
        route,
    })
}

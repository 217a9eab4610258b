//! `kubectl virtlens ui`: the page for browsers, with the agent of a node behind it.

use std::process::ExitCode;

use virtlens_kube::NodeAgent;

use super::args::UiArgs;
use super::target::Target;
use crate::cli::relayed::{self, encoded};
use crate::term::printable;
use crate::views::pick;

/// Serves the page of the agent of a pod's node. With `has_credentials` this command has
/// credentials for it.
pub(super) fn show(
    target: &Target,
    args: &UiArgs,
    has_credentials: bool,
) -> anyhow::Result<ExitCode> {
    target.report_missing();
    let agent = the_one(target)?;
    let view = view_of(target, agent);
    relayed::show(&agent.remote, has_credentials, &view, args.no_open)
}

/// The agent of the only node.
fn the_one(target: &Target) -> anyhow::Result<&NodeAgent> {
    match &target.agents[..] {
        [agent] => Ok(agent),
        agents => {
            let nodes: Vec<&str> = agents.iter().map(|agent| &*agent.node).collect();
            let nodes = printable(&nodes.join(", "));
            anyhow::bail!(
                "the page shows one node; name a pod, or one of these with --node: {nodes}"
            )
        }
    }
}

/// The view of the page: the pod's VM; the list with a filter if the agent does not show the VM to
/// this command, because the page asks for credentials.
fn view_of(target: &Target, agent: &NodeAgent) -> String {
    let Some(pod) = target.pod.as_deref() else {
        let namespace = target.namespace.as_deref();
        let search = namespace.map(|namespace| format!("?search={}", encoded(namespace)));
        return format!("#/node{}", search.unwrap_or_default());
    };
    let reading = agent.remote.snapshot(Some(pod)).ok();
    let found = reading.and_then(|reading| {
        let mut vms = reading.vms.into_iter().filter(|vm| vm.running);
        vms.find(|vm| pick::is_called(vm, pod))
    });
    match found {
        Some(vm) => format!("#/vm/{}", encoded(&vm.vm)),
        None => format!("#/node?search={}", encoded(pod)),
    }
}

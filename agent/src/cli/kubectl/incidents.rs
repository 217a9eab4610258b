//! `kubectl virtlens incidents` and `trace`.

use std::process::ExitCode;

use anyhow::Context as _;
use virtlens_kube::{NodeAgent, incidents};
use virtlens_record::Incident;

use super::args::{IncidentsArgs, IncidentsCommand, ListArgs, ShowArgs, TraceArgs};
use super::target::Target;
use crate::cli::remote_files::{Listed, TraceOrder, Wanted, parse, show_one, take};
use crate::cli::stdout::{print, table_style};
use crate::config::Config;
use crate::term::printable;
use crate::views::incidents::{is_of, list_of_nodes};

/// `incidents`: those of the nodes that answer, or one of them.
pub(super) fn run(
    target: &Target,
    args: IncidentsArgs,
    config: &Config,
) -> anyhow::Result<ExitCode> {
    target.report_missing();
    match args.command {
        None => show_list(target, &args.list),
        Some(IncidentsCommand::Show(args)) => show(target, &args, config),
    }
}

fn show_list(target: &Target, args: &ListArgs) -> anyhow::Result<ExitCode> {
    let answered = read(target)?;
    let count = answered.len();
    let all = answered.into_iter().flat_map(|(_, incidents)| incidents);
    let mut all: Vec<Incident> = all.filter(|one| is_wanted(target, one)).collect();
    all.sort_by_key(|one| one.unix_ns);
    print(&list_of_nodes(&all, args.output, table_style())?)?;
    Ok(target.code(count))
}

fn show(target: &Target, args: &ShowArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let ShowArgs {
        id,
        output,
        save_trace,
    } = args;
    let answered = read(target)?;
    let has = |(_, incidents): &&(&NodeAgent, Vec<Incident>)| {
        let mut wanted = incidents.iter().filter(|one| is_wanted(target, one));
        wanted.any(|one| one.id == *id)
    };
    let found: Vec<&NodeAgent> = answered
        .iter()
        .filter(has)
        .map(|(agent, _)| *agent)
        .collect();
    let shown = printable(id);
    let agent = match found[..] {
        [] => anyhow::bail!(
            "unknown incident {shown}; list incidents with kubectl virtlens incidents"
        ),
        [agent] => agent,
        [..] => {
            let nodes: Vec<&str> = found.iter().map(|agent| &*agent.node).collect();
            let nodes = printable(&nodes.join(", "));
            anyhow::bail!("{shown} is on several nodes; select one with --node: {nodes}");
        }
    };
    let node = printable(&agent.node);
    let wanted = Wanted {
        id,
        output: *output,
        save_trace: save_trace.as_deref(),
        command: &format!(
            "kubectl virtlens incidents show {shown} --node {node} --save-trace FILE"
        ),
    };
    show_one(&agent.remote, &wanted, config)
}

/// The incidents of the nodes that answer.
fn read(target: &Target) -> anyhow::Result<Vec<(&NodeAgent, Vec<Incident>)>> {
    let answered = target.answered(incidents(&target.agents))?;
    let parsed = answered.into_iter().map(|(agent, body)| {
        let listed: Listed = parse(&body).with_context(|| printable(&agent.node))?;
        Ok((agent, listed.incidents))
    });
    parsed.collect()
}

/// Whether the incident is of a VM to show.
fn is_wanted(target: &Target, incident: &Incident) -> bool {
    let namespace = target.namespace.as_deref();
    let is_in = namespace.is_none_or(|wanted| incident.vm.namespace.as_deref() == Some(wanted));
    is_in && target.pod.as_deref().is_none_or(|pod| is_of(incident, pod))
}

/// `trace`: on the pod's node.
pub(super) fn trace(target: &Target, args: &TraceArgs) -> anyhow::Result<ExitCode> {
    target.report_missing();
    let order = TraceOrder {
        vm: target.pod.as_deref().unwrap_or(&args.pod),
        length: args.window.0,
        max_mib: args.max_size,
        output: args.output.as_deref(),
    };
    let agent = target.agents.first().context("no running agent")?;
    take(&agent.remote, &order)
}

//! Incidents and traces of another node's agent.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use virtlens_kube::{Remote, TraceRequest};
use virtlens_record::Incident;

use crate::cli::args::{ListArgs, ShowArgs, TraceArgs};
use crate::cli::stdout::{print, table_style};
use crate::config::{Config, ConfigError};
use crate::views::doctor::Output;
use crate::views::incidents::{Shown, list};
use crate::views::trace;

/// Largest trace of an agent, MiB, and by default.
const MAX_MIB: u64 = 60;
const DEFAULT_MIB: u64 = 16;

/// The part of a list of incidents that is shown.
#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) incidents: Vec<Incident>,
}

/// `incidents`: those of an agent.
pub(crate) fn show_list(agent: &Remote, args: &ListArgs) -> anyhow::Result<ExitCode> {
    let body = agent.incidents()?;
    let listed: Listed = parse(&body)?;
    print(&list(&listed.incidents, args.output, table_style())?)
}

/// An incident of an agent to show.
pub(super) struct Wanted<'a> {
    pub(super) id: &'a str,
    pub(super) output: Output,
    /// File for its trace.
    pub(super) save_trace: Option<&'a Path>,
    /// The command with which its trace is fetched.
    pub(super) command: &'a str,
}

/// `incidents show`: one of an agent.
pub(crate) fn show(agent: &Remote, args: &ShowArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let id = &args.id;
    let wanted = Wanted {
        id,
        output: args.output,
        save_trace: args.save_trace.as_deref(),
        command: &format!("virtlens incidents show {id} --save-trace FILE --from URL"),
    };
    show_one(agent, &wanted, config)
}

/// Shows an incident of an agent.
pub(super) fn show_one(
    agent: &Remote,
    wanted: &Wanted<'_>,
    config: &Config,
) -> anyhow::Result<ExitCode> {
    let id = wanted.id;
    let shown: Shown = parse(&agent.incident(id)?)?;
    let text = match wanted.output {
        Output::Text => shown
            .fetched_by(wanted.command)
            .text(&config.bounds, table_style()),
        Output::Json => shown.json()?,
    };
    let code = print(&text)?;
    if let Some(file) = wanted.save_trace {
        save(Some(file), id, agent.incident_trace(id)?)?;
    }
    Ok(code)
}

/// A trace to take of a VM of another node.
pub(super) struct TraceOrder<'a> {
    pub(super) vm: &'a str,
    pub(super) length: Duration,
    pub(super) max_mib: Option<u64>,
    /// File for the trace.
    pub(super) output: Option<&'a Path>,
}

/// `trace`: of a VM of another node.
pub(crate) fn follow(agent: &Remote, args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let order = TraceOrder {
        vm: &args.vm,
        length: args.window.0,
        max_mib: args.max_size,
        output: args.output.as_deref(),
    };
    take(agent, &order)
}

/// Takes a trace on another node.
pub(super) fn take(agent: &Remote, order: &TraceOrder<'_>) -> anyhow::Result<ExitCode> {
    let longest = Duration::from_secs(30);
    if !(Duration::from_millis(100)..=longest).contains(&order.length) {
        let text = "--for: expected 100ms to 30s on another node";
        return Err(ConfigError::Usage(text.to_owned()).into());
    }
    let max_mib = order.max_mib.unwrap_or(DEFAULT_MIB);
    if max_mib > MAX_MIB {
        let text = format!("--max-size: expected 1 to {MAX_MIB} on another node");
        return Err(ConfigError::Usage(text).into());
    }
    let request = TraceRequest {
        vm: order.vm.to_owned(),
        length: order.length,
        max_mib,
    };
    let bytes = agent.trace(&request)?;
    save(order.output, order.vm, bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// Saves a trace of the VM or incident called `name`.
fn save(file: Option<&Path>, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
    let written = trace::save(file, name, bytes)?;
    // The trace may be on stdout.
    eprintln!("{written} (open it in https://ui.perfetto.dev)");
    Ok(())
}

pub(super) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the agent sent an unknown answer")
}

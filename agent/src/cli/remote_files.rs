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
struct Listed {
    incidents: Vec<Incident>,
}

/// `incidents`: those of an agent.
pub(crate) fn show_list(agent: &Remote, args: &ListArgs) -> anyhow::Result<ExitCode> {
    let body = agent.incidents()?;
    let listed: Listed = parse(&body)?;
    print(&list(&listed.incidents, args.output, table_style())?)
}

/// `incidents show`: one of an agent.
pub(crate) fn show(agent: &Remote, args: &ShowArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let shown: Shown = parse(&agent.incident(&args.id)?)?;
    let text = match args.output {
        Output::Text => {
            let id = &args.id;
            let command = format!("virtlens incidents show {id} --save-trace FILE --from URL");
            shown
                .fetched_by(&command)
                .text(&config.bounds, table_style())
        }
        Output::Json => shown.json()?,
    };
    let code = print(&text)?;
    if let Some(file) = &args.save_trace {
        save(Some(file), &args.id, agent.incident_trace(&args.id)?)?;
    }
    Ok(code)
}

/// `trace`: of a VM of another node.
pub(crate) fn follow(agent: &Remote, args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let longest = Duration::from_secs(30);
    if !(Duration::from_millis(100)..=longest).contains(&args.window.0) {
        let text = "--for: expected 100ms to 30s with --from";
        return Err(ConfigError::Usage(text.to_owned()).into());
    }
    let max_mib = args.max_size.unwrap_or(DEFAULT_MIB);
    if max_mib > MAX_MIB {
        let text = format!("--max-size: expected 1 to {MAX_MIB} with --from");
        return Err(ConfigError::Usage(text).into());
    }
    let request = TraceRequest {
        vm: args.vm.clone(),
        length: args.window.0,
        max_mib,
    };
    let bytes = agent.trace(&request)?;
    save(args.output.as_deref(), &args.vm, bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// Saves a trace of the VM or incident called `name`.
fn save(file: Option<&Path>, name: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
    let written = trace::save(file, name, bytes)?;
    // The trace may be on stdout.
    eprintln!("{written} (open it in https://ui.perfetto.dev)");
    Ok(())
}

fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the agent sent an unknown answer")
}

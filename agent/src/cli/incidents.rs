//! `virtlens incidents`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use virtlens_record::{Incident, incident_path, incidents};

use crate::cli::args::{IncidentsArgs, IncidentsCommand};
use crate::cli::stdout::{print, table_style};
use crate::cli::{past, remote, remote_files};
use crate::config::{Config, ConfigError};
use crate::term::printable;
use crate::views::doctor::Output;
use crate::views::incidents::{Shown, list, readings};

pub(crate) fn run(config: &Config, args: IncidentsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        None => {
            let args = args.list;
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote_files::show_list(&agent, &args);
            }
            let records = records(config, args.from.as_deref())?;
            print(&list(&known(&records)?, args.output, table_style())?)
        }
        Some(IncidentsCommand::Show(args)) => {
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote_files::show(&agent, &args, config);
            }
            if args.save_trace.is_some() {
                let text = "--save-trace is for --from URL; the trace is a file of the recording";
                return Err(ConfigError::Usage(text.to_owned()).into());
            }
            let records = records(config, args.from.as_deref())?;
            show(&records, &args.id, args.output, config)
        }
    }
}

fn records(config: &Config, from: Option<&Path>) -> Result<PathBuf, ConfigError> {
    let command = "virtlens incidents";
    let path = past::path(config, from, Some(command))?;
    path.ok_or_else(|| ConfigError::Usage(format!("{command} needs a recording")))
}

/// The readable incidents of a recording.
fn known(records: &Path) -> anyhow::Result<Vec<Incident>> {
    let read = incidents(records);
    let (readable, unreadable) =
        read.with_context(|| format!("cannot read the recording {}", records.display()))?;
    for error in unreadable {
        tracing::warn!(%error, "an incident is unreadable");
    }
    Ok(readable)
}

fn show(records: &Path, id: &str, output: Output, config: &Config) -> anyhow::Result<ExitCode> {
    let missing = || {
        let (id, records) = (printable(id), records.display());
        format!("no incident {id} in {records}; virtlens incidents lists them")
    };
    let directory = incident_path(records, id).with_context(missing)?;
    let found = virtlens_record::incident(records, id)?;
    let incident = found.with_context(missing)?;
    let lost = |error| tracing::warn!(%error, "a part of the recording is unreadable");
    let read = readings(&incident, &directory, |snapshot| snapshot, lost);
    let readings = read.with_context(|| format!("cannot read {}", directory.display()))?;
    let shown = Shown::new(incident, Some(&directory), &readings);
    print(&match output {
        Output::Text => shown.text(&config.bounds, table_style()),
        Output::Json => shown.json()?,
    })
}

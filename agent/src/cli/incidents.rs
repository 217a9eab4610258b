//! `virtlens incidents`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use virtlens_model::judge::around::Reading;
use virtlens_record::{Incident, Recording, incident_path, incidents};

use crate::cli::args::{IncidentsArgs, IncidentsCommand, ListArgs, ShowArgs};
use crate::cli::past;
use crate::cli::stdout::{print, table_style};
use crate::config::{Config, ConfigError};
use crate::term::printable;
use crate::views::doctor::Output;
use crate::views::incidents::{Shown, list};

/// Most readings of an incident that are compared: one a second for longer than it lasts.
const MAX_READINGS: usize = 1000;

pub(crate) fn run(config: &Config, args: IncidentsArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        None => {
            let ListArgs { from, output } = args.list;
            let records = records(config, from.as_deref())?;
            print(&list(&known(&records)?, output, table_style())?)
        }
        Some(IncidentsCommand::Show(ShowArgs { id, from, output })) => {
            let records = records(config, from.as_deref())?;
            show(&records, &id, output, config)
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
    let all = known(records)?;
    let incident = all.iter().find(|one| one.id == id).with_context(missing)?;
    let readings = readings(incident, &directory)?;
    let shown = Shown::new(incident, &directory, &readings);
    print(&match output {
        Output::Text => shown.text(&config.bounds, table_style()),
        Output::Json => serde_json::to_string_pretty(&shown)? + "\n",
    })
}

/// The readings of the incident's VM.
fn readings(incident: &Incident, directory: &Path) -> anyhow::Result<Vec<Reading>> {
    let opened = Recording::open(directory);
    let (recording, refused) =
        opened.with_context(|| format!("cannot read {}", directory.display()))?;
    for error in refused {
        tracing::warn!(%error, "a part of the recording is unreadable");
    }
    let time = incident.from_ns..incident.until_ns.saturating_add(1);
    let mut readings = Vec::new();
    for recorded in recording.between(time).take(MAX_READINGS) {
        let recorded = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                tracing::warn!(%error, "a part of the recording is unreadable");
                continue;
            }
        };
        let clock_ns = recorded.snapshot.clock_ns;
        let mut vms = recorded.snapshot.vms.into_iter();
        readings.extend(vms.find(|vm| incident.vm.is(vm)).map(|vm| Reading {
            unix_ns: recorded.unix_ns,
            clock_ns,
            vm,
        }));
    }
    Ok(readings)
}

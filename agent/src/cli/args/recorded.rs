//! Arguments of the commands on recordings and incidents.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use virtlens_export::ExtraLabel;

use super::connect::ConnectArgs;
use crate::moment::Moment;
use crate::views::{doctor, export, snapshot};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    #[command(subcommand)]
    pub(crate) command: RecordCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// Print the readings of a recording in a format for other programs
    ///
    /// openmetrics is for promtool tsdb create-blocks-from openmetrics: it has the
    /// metrics that --metrics selects, with the times of the readings. jsonl has for
    /// each reading one line, the JSON of virtlens snapshot. csv has one row for each
    /// reading and VM. The exit code is 1 if a part of the recording is unreadable.
    #[command(
        after_help = "Example: virtlens record export --from DIR --since -1h --label \
                      instance=node-a:9877 --label job=virtlens > readings.txt"
    )]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// VM to export, without the metrics of the agent: NAMESPACE/POD, name, pod uid or
    /// pid of the VMM
    pub(crate) vm: Option<String>,
    /// Directory of virtlens run --record, or one of its files [default: the configured
    /// one]
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// Time of the first reading: '20 min ago', -15m or RFC 3339 [default: the start of
    /// the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,
    /// Time of the last reading [default: the end of the recording]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "openmetrics")]
    pub(crate) output: export::Output,
    /// Label of all series in openmetrics, such as job=virtlens; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub(crate) labels: Vec<ExtraLabel>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct IncidentsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<IncidentsCommand>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Directory of virtlens run --record [default: the configured one]; or another agent
    /// by its URL
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: snapshot::Output,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IncidentsCommand {
    /// Show an incident: its findings, and the VM before and during it
    #[command(after_help = "Example: virtlens incidents show ID --from DIR")]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Incident to show, as virtlens incidents lists it
    pub(crate) id: String,
    /// Directory of virtlens run --record [default: the configured one]; or another agent
    /// by its URL
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: doctor::Output,
    /// With --from URL: save the trace of the incident in this file, as trace --output
    #[arg(long, value_name = "FILE")]
    pub(crate) save_trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

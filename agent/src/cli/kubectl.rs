//! `kubectl virtlens`: this program under the name `kubectl-virtlens`, on the nodes of a
//! cluster.

mod args;
mod complete;
mod incidents;
mod page;
mod readings;
mod show;
mod target;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use self::args::{Command, Kubectl};
pub(super) use self::complete::complete;
use self::target::find;
use crate::cli::failure::{fail, is_usage_error, usage_error};
use crate::cli::log;
use crate::config::{Config, LogFormat, Settings};

/// Name of the program as a plugin of kubectl.
pub(super) const PLUGIN: &str = "kubectl-virtlens";

/// Name of the program with which kubectl completes the plugin's arguments.
pub(super) const COMPLETION: &str = "kubectl_complete-virtlens";

/// The command line of the plugin.
pub(super) fn command() -> clap::Command {
    Kubectl::command()
}

/// Runs the plugin with the arguments of the process.
pub(super) fn main() -> ExitCode {
    let cli = match Kubectl::try_parse() {
        Ok(cli) => cli,
        // To stdout with 0 for --help, to stderr with 2 for no command.
        Err(error) if is_usage_error(error.kind()) => error.exit(),
        Err(error) => return fail(&usage_error(&error, "kubectl virtlens")),
    };
    log::init(LogFormat::default(), tracing::Level::ERROR);
    match execute(cli) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn execute(cli: Kubectl) -> anyhow::Result<ExitCode> {
    let target = find(&cli.cluster, cli.command.pod())?;
    let config = Config::from(Settings::default());
    match cli.command {
        Command::Snapshot(args) => show::snapshot(&target, &args),
        Command::Top(args) => show::top(target, &args),
        Command::Topology(args) => show::topology(&target, &args),
        Command::Doctor(args) => show::diagnose(&target, &args, &config),
        Command::Trace(args) => incidents::trace(&target, &args),
        Command::Incidents(args) => incidents::run(&target, args, &config),
        Command::Ui(args) => page::show(&target, &args, cli.cluster.has_credentials()),
    }
}

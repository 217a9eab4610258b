//! The command line, and how the program ends.
//!
//! Data goes to stdout, messages to stderr, one line for an error. The exit
//! code is 0 for success, 2 for what the user has to say differently (flags,
//! environment, configuration file), 1 for everything else. `doctor` also ends
//! with 2 when it has findings, and then has written them to stdout.

mod args;
mod live;
pub mod log;
pub mod run;
mod stdout;
mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use virtlens_host::{HostRoot, nohz_full};

use self::stdout::{print, table_style};
use crate::cli::args::{
    CheckArgs, Common, CompletionArgs, DoctorArgs, MetricsArgs, RunArgs, SnapshotArgs, TopArgs,
    TopologyArgs, TraceArgs,
};
use crate::collect::{Collector, Options};
use crate::config::{Config, ConfigError, Settings};
use crate::process;
use crate::views::{catalogue, check, doctor, snapshot};

/// Shows what VM-isolated pods really cost and suffer on their host
#[derive(Debug, Parser)]
#[command(name = "virtlens", version, term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve metrics to Prometheus
    ///
    /// Serves /metrics, /healthz, /readyz and a page at /. The host is read
    /// when a scraper asks, and never in between. SIGTERM and SIGINT end it. What
    /// counts stays in the kernel (under /sys/fs/bpf/virtlens) and counts on for the
    /// next agent; virtlens check --clean removes it.
    #[command(after_help = "Example: virtlens run --listen 127.0.0.1:9877 --table")]
    Run(RunArgs),
    /// Show the VMs of this host once
    ///
    /// The table shows the CPU seconds of all threads that live, or with
    /// --interval the cores in use: by role, the time spent waiting for a CPU
    /// (WAIT), the tightest CPU limit in cores (QUOTA), and in which share of
    /// its periods it was used up (THR%). "-" is what does not exist or is not
    /// known, "gone" a VM that has ended. What ended threads used only an agent
    /// counts.
    #[command(after_help = "Example: virtlens snapshot --interval 1s -o json")]
    Snapshot(SnapshotArgs),
    /// Watch the VMs live: all of them, or one in depth
    ///
    /// The list shows of each VM the cores in use, the share of its tightest CPU
    /// limit that is used (USED%) and for which it is throttled (THR%), its
    /// busiest I/O worker, the vCPU that waits most (WAIT%), and memory. Enter
    /// shows one VM: roles, limits, vCPUs, workers, memory, findings. "?"
    /// explains the keys. Without a terminal it prints one table and ends.
    #[command(after_help = "Example: virtlens top shop/web-0 --interval 500ms")]
    Top(TopArgs),
    /// Draw the host's CPUs, each vCPU where it sits, and what is out of place
    ///
    /// A letter stands for a VM, the number behind it for a vCPU by its APIC
    /// id: "A0" is bound to the core where it stands, "~A0" was seen there
    /// last and may go elsewhere, "A0!" is out of place, as told below the
    /// tree. VMs that are pinned are judged by their masks, others by where
    /// they ran.
    #[command(after_help = "Example: virtlens topology shop/web-0 --window 10s")]
    Topology(TopologyArgs),
    /// Tell what is wrong with the VMs, and what to do about it
    ///
    /// Watches for a while and judges each VM by what it did meanwhile: CPU
    /// limits and who used them up, I/O threads and vCPUs at their ends, waiting,
    /// polling, overhead, placement, memory. Each finding tells what was
    /// measured, the rule, what to do and where to look next. Exits with 0 when
    /// there is none, with 2 when there are some, with 1 when it cannot tell.
    #[command(after_help = "Example: virtlens doctor shop/web-0 --for 30s")]
    Doctor(DoctorArgs),
    /// Follow one VM for a short time, event by event, into a file
    ///
    /// Writes what each thread of the VM did, on which CPU and how long it waited;
    /// when each vCPU was in its guest, and why it left it; when CPU limits held the
    /// VM back, and memory it gave back. The file is for the Perfetto viewer; a
    /// summary goes to stdout. It costs nothing before and after, and meanwhile
    /// mostly the VM that is looked at.
    #[command(
        after_help = "Example: virtlens trace shop/web-0 --for 5s -o web.pftrace\n\nOut of a \
                      container: kubectl exec POD -- virtlens trace shop/web-0 -o - > web.pftrace"
    )]
    Trace(TraceArgs),
    /// Tell what this kernel offers, what degrades and why
    ///
    /// Exits with 0 when everything works fully, else with 1.
    #[command(after_help = "Example: virtlens check --root /host")]
    Check(CheckArgs),
    /// List all metrics with their types, units, labels and meanings
    #[command(after_help = "Example: virtlens metrics -o markdown")]
    Metrics(MetricsArgs),
    /// Print what makes a shell complete virtlens' commands and options
    #[command(after_help = "Example: source <(virtlens completion bash)")]
    Completion(CompletionArgs),
}

/// Runs the program with the arguments and environment of the process.
pub fn main() -> ExitCode {
    process::started();
    process::keep_to_small_pages();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if wants_to_know(error.kind()) => {
            // To stdout with 0 for --help, to stderr with 2 for no command.
            error.exit();
        }
        Err(error) => return fail(&ConfigError::Usage(one_line(&error)).into()),
    };
    match execute(cli) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    let level = match cli.command {
        Command::Run(_) => tracing::Level::INFO,
        // Nothing may write over the screen.
        Command::Top(_) => tracing::Level::ERROR,
        _ => tracing::Level::WARN,
    };
    let config = cli.configure()?;
    log::init(
        config.log_format,
        config.log_level.map_or(level, |level| level.0),
    );
    match cli.command {
        Command::Run(args) => {
            run::run(&config, args.table)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Snapshot(args) => {
            let interval = args.interval.map(|span| span.0);
            let mut collector = open(&config)?;
            print(&snapshot::text(
                &mut collector,
                args.output,
                interval,
                table_style(),
            )?)
        }
        Command::Top(args) => live::watch(&mut open(&config)?, &args),
        Command::Topology(args) => live::show_topology(&mut open(&config)?, &args),
        Command::Doctor(args) if args.checks => {
            print(&doctor::catalogue(&config.bounds, table_style()))
        }
        Command::Doctor(args) => live::diagnose(&mut open(&config)?, &args),
        Command::Trace(args) => live::follow(&mut open(&config)?, args),
        Command::Check(CheckArgs { clean: true }) => print(&check::clean(&config.root)?),
        Command::Check(_) => {
            let mut collector = open(&config)?;
            let snapshot = collector.collect();
            let features = collector.check();
            let report = check::report(&snapshot.node, config.loader, &features);
            let ticks = check::note_of_ticks(&nohz_full(&HostRoot::new(&config.root)));
            let code = print(&(report + &ticks))?;
            Ok(if check::all_on(&features) {
                code
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Metrics(args) => print(&catalogue::text(args.output)?),
        Command::Completion(args) => print(&completion(args.shell)),
    }
}

impl Cli {
    /// Flags over environment over file over defaults.
    fn configure(&self) -> Result<Config, ConfigError> {
        let variable = |name: &str| std::env::var(name).ok();
        let file = self.common.config.clone().or_else(|| {
            variable("VIRTLENS_CONFIG")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        });
        let file = file.map_or(Ok(Settings::default()), |path| Settings::from_file(&path))?;
        Ok(self
            .flags()
            .over(Settings::from_env(variable)?)
            .over(file)
            .into())
    }

    fn flags(&self) -> Settings {
        let common = &self.common;
        let run = match &self.command {
            Command::Run(run) => Some(run),
            _ => None,
        };
        Settings {
            listen: run.and_then(|run| run.listen),
            web_config: run.and_then(|run| run.web_config.clone()),
            web_auth: run.and_then(|run| run.web_auth),
            min_age: run.and_then(|run| run.min_age),
            linger: run.and_then(|run| run.linger),
            log_format: common.log_format,
            log_level: common.log_level,
            node_name: common.node_name.clone(),
            metadata: common.metadata.clone(),
            kubeconfig: common.kubeconfig.clone(),
            kubelet_url: common.kubelet_url.clone(),
            kubelet_ca: common.kubelet_ca.clone(),
            pcpu_series: common.pcpu_series.then_some(true),
            no_pin: run.and_then(|run| run.no_pin.then_some(true)),
            loader: common.loader,
            thresholds: None,
            root: common.root.clone(),
        }
    }
}

fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "virtlens", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn open(config: &Config) -> anyhow::Result<Collector> {
    if !process::is_root() {
        tracing::warn!(
            "not root: only what this user may read is seen; run as root to see all VMs"
        );
    }
    Collector::open(&Options::named(config)?)
}

fn wants_to_know(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// What clap says of an error over several lines, up to the usage.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let words: Vec<_> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.trim_start_matches("error: "))
        .collect();
    format!("{} (see virtlens --help)", words.join("; "))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("virtlens: {error:#}");
    ExitCode::from(if error.is::<ConfigError>() { 2 } else { 1 })
}

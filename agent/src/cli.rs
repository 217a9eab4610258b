//! The command line, and how the program ends.
//!
//! Data goes to stdout, messages to stderr, one line for an error. The exit
//! code is 0 for success, 2 for what the user has to say differently (flags,
//! environment, configuration file), 1 for everything else. `doctor` also ends
//! with 2 when it has findings, and then has written them to stdout.

mod args;
mod compare;
mod failure;
mod incidents;
mod kubectl;
mod live;
pub mod log;
mod past;
mod record;
pub mod reference;
mod relayed;
mod remote;
mod remote_files;
mod replay;
pub mod run;
mod shown;
mod stdout;
mod stop;
mod ui;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use virtlens_host::{HostRoot, nohz_full};
use virtlens_probe::plan::Feature;

use self::failure::{fail, is_usage_error, usage_error};
use self::stdout::{print, table_style};
use crate::cli::args::{
    CheckArgs, Common, CompletionArgs, DoctorArgs, IncidentsArgs, MetricsArgs, RecordArgs,
    RecordCommand, RunArgs, SnapshotArgs, TopArgs, TopologyArgs, TraceArgs, UiArgs,
};
use crate::collect::traces::TraceLock;
use crate::collect::{Collector, Options};
use crate::config::{Config, ConfigError, Settings};
use crate::process;
use crate::views::{catalogue, check, doctor, snapshot, top};

/// Shows what VM-isolated pods cost on their host
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
    /// Serves /metrics, /healthz, /readyz, and a page for browsers at /. The host is
    /// read on each scrape, and in between only with --record. SIGTERM and SIGINT end the agent. Its BPF
    /// programs and maps stay in the kernel (under /sys/fs/bpf/virtlens) and keep
    /// counting for the next agent; virtlens check --clean removes them.
    #[command(after_help = "Example: virtlens run --listen 127.0.0.1:9877 --table")]
    Run(RunArgs),
    /// Show the VMs of this host once
    ///
    /// The table shows, by role, the CPU seconds of all living threads, or with
    /// --interval the cores in use. WAIT is the time spent waiting for a CPU, QUOTA
    /// the CPU limit in cores, THR% the share of its periods that were throttled.
    /// "-" is a value that does not exist or is unknown, "gone" a VM that ended.
    /// Only a running agent counts the CPU time of threads that ended.
    #[command(after_help = "Example: virtlens snapshot --interval 1s -o json")]
    Snapshot(SnapshotArgs),
    /// Show the VMs live: all of them, or one in depth
    ///
    /// For each VM the list shows the cores in use, the used share of its CPU limit
    /// (USED%), the share of time that the limit throttled it (THR%), its busiest
    /// I/O worker, the vCPU that waits most (WAIT%), and memory. Enter shows one
    /// VM: roles, limits, vCPUs, workers, memory, findings. "?" explains the keys.
    /// Without a terminal the command prints one table and exits. With --from it shows a
    /// recording with a time line, to step and play through.
    #[command(after_help = "Example: virtlens top shop/web-0 --interval 500ms")]
    Top(TopArgs),
    /// Draw the host's CPUs with the vCPUs on them, and mismatches
    ///
    /// A letter is a VM, the number after it a vCPU by its APIC id: "A0" is pinned
    /// to the core where it is drawn, "~A0" ran there last and may move, "A0!"
    /// has a mismatch, which is explained below the tree. Pinned VMs are judged by
    /// their affinity masks, other VMs by the CPUs where they ran.
    #[command(after_help = "Example: virtlens topology shop/web-0 --window 10s")]
    Topology(TopologyArgs),
    /// Diagnose the VMs: findings and remedies
    ///
    /// Observes the VMs for some time and checks CPU limits and which role used
    /// them, saturated I/O threads and vCPUs, run delay, halt polling, overhead,
    /// placement and memory. Each finding has the measurement, the rule, the remedy
    /// and the next place to look. The exit code is 0 without findings, 2 with
    /// findings, and 1 if the VMs cannot be judged.
    #[command(after_help = "Example: virtlens doctor shop/web-0 --for 30s")]
    Doctor(DoctorArgs),
    /// Record one VM for a short time, event by event, in a file
    ///
    /// Records for each thread of the VM on which CPU it ran and how long it waited;
    /// when each vCPU was in guest mode, and why it exited; when CPU limits
    /// throttled the VM; and memory that it discarded. The file is for the Perfetto
    /// viewer; a summary goes to stdout. The trace programs are loaded only while
    /// the command runs, and slow down mostly the traced VM.
    #[command(
        after_help = "Example: virtlens trace shop/web-0 --for 5s -o web.pftrace\n\nOut of a \
                      container: kubectl exec POD -- virtlens trace shop/web-0 -o - > web.pftrace"
    )]
    Trace(TraceArgs),
    /// Show the VMs in a browser
    ///
    /// Serves the page of the agent on a free port of 127.0.0.1 and prints its address.
    /// Without root it also opens the address with xdg-open. The address has a code that only
    /// the first browser can use. With --from DIR it shows a recording. With --from URL it
    /// opens the page of that agent, or with credentials or --ca-file passes requests on to it.
    #[command(after_help = "Example: virtlens ui --from DIR")]
    Ui(UiArgs),
    /// Use the recordings of virtlens run --record
    #[command(after_help = "Example: virtlens record export --from DIR --since -1h -o csv")]
    Record(RecordArgs),
    /// List incidents of an agent that records: warnings, with what was kept of them
    ///
    /// When a finding of severity warning begins on a VM, the agent keeps the
    /// recording from 5 min before to 1 min after, and traces the VM for 5 s. A VM
    /// has one incident in 10 min, a node 6 in an hour. Incidents are in the
    /// subdirectory incidents of the recording, and can be copied from there.
    #[command(after_help = "Example: virtlens incidents --from DIR -o json")]
    Incidents(IncidentsArgs),
    /// Report which kernel features are available, and what is degraded and why
    ///
    /// The exit code is 0 if everything works fully, else 1.
    #[command(after_help = "Example: virtlens check --root /host")]
    Check(CheckArgs),
    /// List all metrics with their types, units, labels and meanings
    #[command(after_help = "Example: virtlens metrics -o markdown")]
    Metrics(MetricsArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example: source <(virtlens completion bash)")]
    Completion(CompletionArgs),
}

/// Runs the program with the arguments and environment of the process.
pub fn main() -> ExitCode {
    process::started();
    process::keep_to_small_pages();
    let name = std::env::args_os().next().map(PathBuf::from);
    match name
        .as_deref()
        .and_then(Path::file_name)
        .and_then(OsStr::to_str)
    {
        Some(kubectl::PLUGIN) => return kubectl::main(),
        Some(kubectl::COMPLETION) => return kubectl::complete(),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if is_usage_error(error.kind()) => {
            // To stdout with 0 for --help, to stderr with 2 for no command.
            error.exit();
        }
        Err(error) => return fail(&usage_error(&error, "virtlens")),
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
        Command::Top(_) if top::has_terminal() => tracing::Level::ERROR,
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
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote::show(&agent, &args);
            }
            let time = args.at.map(|_| "--at");
            if let Some(path) = past::path(&config, args.from.as_deref(), time)? {
                return past::show(&path, &args);
            }
            let interval = args.interval.map(|span| span.0);
            let mut collector = open(&config, shown::by_snapshot(args.output, interval))?;
            print(&snapshot::text(
                &mut collector,
                args.output,
                interval,
                table_style(),
            )?)
        }
        Command::Top(args) => {
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote::watch(agent, &args);
            }
            let time = args.at.map(|_| "--at");
            if let Some(path) = past::path(&config, args.from.as_deref(), time)? {
                return replay::watch(&path, &args);
            }
            live::watch(&mut open(&config, shown::by_top())?, &args)
        }
        Command::Topology(args) => {
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote::show_topology(&agent, &args);
            }
            let time = args.at.map(|_| "--at");
            if let Some(path) = past::path(&config, args.from.as_deref(), time)? {
                return replay::show_topology(&path, &args);
            }
            live::show_topology(&mut open(&config, &shown::BY_TOPOLOGY)?, &args)
        }
        Command::Doctor(args) if args.checks => {
            print(&doctor::catalogue(&config.bounds, table_style()))
        }
        Command::Doctor(args) => {
            if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
                return remote::diagnose(&agent, &args, &config);
            }
            let since = args.since.map(|_| "--since");
            let time = since.or(args.until.map(|_| "--until"));
            let time = time.or(args.against.map(|_| "--against"));
            if let Some(path) = past::path(&config, args.from.as_deref(), time)? {
                past::refuse_window(&args)?;
                return match args.against {
                    Some(against) => compare::diagnose(&path, &args, against),
                    None => past::diagnose(&path, &args, &config),
                };
            }
            live::diagnose(&mut open(&config, &Feature::ALL)?, &args)
        }
        Command::Trace(args) => trace(&config, args),
        Command::Ui(args) => show_page(&config, &args),
        Command::Record(RecordArgs {
            command: RecordCommand::Export(args),
        }) => record::export(&config, &args),
        Command::Incidents(args) => incidents::run(&config, args),
        Command::Check(CheckArgs { clean: true }) => print(&check::clean(&config.root)?),
        Command::Check(_) => {
            let mut collector = open(&config, &Feature::ALL)?;
            let snapshot = collector.collect();
            // Until here it is tested whether programs can be attached.
            collector.rest()?;
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

fn show_page(config: &Config, args: &UiArgs) -> anyhow::Result<ExitCode> {
    let connect = &args.connect;
    if let Some(url) = args.from.as_deref().and_then(remote::url)
        && connect.is_empty()
    {
        return ui::agent(url, args);
    }
    if let Some(agent) = remote::agent(args.from.as_deref(), connect)? {
        return relayed::show(&agent, connect.has_credentials(), "#/node", args.no_open);
    }
    let traces = run::traces(config, TraceLock::default());
    match past::path(config, args.from.as_deref(), None)? {
        Some(path) => ui::recording(config, traces, &path, args),
        None => ui::host(config, traces, open(config, &Feature::ALL)?, args),
    }
}

fn trace(config: &Config, args: TraceArgs) -> anyhow::Result<ExitCode> {
    if let Some(agent) = remote::agent(args.from.as_deref(), &args.connect)? {
        return remote_files::follow(&agent, &args);
    }
    if args.from.is_some() {
        let text = "--from: expected the URL of an agent; the traces of a recording are those of \
                    its incidents";
        return Err(ConfigError::Usage(text.to_owned()).into());
    }
    live::follow(&mut open(config, &shown::BY_TRACE)?, args)
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
            web_trace_users: run.and_then(|run| run.web_trace_users.clone()),
            min_age: run.and_then(|run| run.min_age),
            linger: run.and_then(|run| run.linger),
            log_format: common.log_format,
            log_level: common.log_level,
            node_name: common.node_name.clone(),
            metadata: common.metadata.clone(),
            kubeconfig: common.kubeconfig.clone(),
            kubelet_url: common.kubelet_url.clone(),
            kubelet_ca: common.kubelet_ca.clone(),
            metrics: common.metrics.clone(),
            no_pin: run.and_then(|run| run.no_pin.then_some(true)),
            loader: common.loader,
            record: run.and_then(|run| run.record.clone()),
            record_interval: run.and_then(|run| run.record_interval),
            record_max_mib: run.and_then(|run| run.record_max_mib),
            record_max_age: run.and_then(|run| run.record_max_age),
            incidents_max_mib: run.and_then(|run| run.incidents_max_mib),
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

fn open(config: &Config, features: &'static [Feature]) -> anyhow::Result<Collector> {
    if !process::is_root() {
        tracing::warn!(
            "not running as root: VMs of other users are not visible; run as root to see all VMs"
        );
    }
    Collector::open(&Options {
        features,
        ..Options::named(config)?
    })
}

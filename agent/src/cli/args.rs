//! The arguments of each command.

#![expect(
    clippy::doc_markdown,
    reason = "clap prints these texts verbatim, backticks included"
)]

mod connect;
mod recorded;

use std::path::PathBuf;

use clap::Args;
use virtlens_export::Selection;
use virtlens_probe::loader::Loader;

pub(crate) use self::connect::ConnectArgs;
pub(crate) use self::recorded::{
    ExportArgs, IncidentsArgs, IncidentsCommand, ListArgs, RecordArgs, RecordCommand, ShowArgs,
};
use crate::config::{Listen, LogFormat, LogLevel, Metadata, Span, Users, WebAuth};
use crate::moment::Moment;
use crate::views::{catalogue, doctor, snapshot};

#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// YAML file with the settings listen, web_config, web_auth, web_trace_users,
    /// min_age, linger, log_format, log_level, node_name, metadata, kubeconfig, kubelet_url,
    /// kubelet_ca, metrics, no_pin, loader, record, record_interval, record_max_mib,
    /// record_max_age, incidents_max_mib, thresholds and root [env: VIRTLENS_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory that contains the host's /proc and /sys [default: /]
    /// [env: VIRTLENS_ROOT]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Name of the node [default: the host name] [env: VIRTLENS_NODE_NAME,
    /// NODE_NAME]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Source of pod names: apiserver, kubelet, file:PATH (the output of
    /// kubectl get pods -A -o json) or none [default: apiserver in a pod or with
    /// --kubeconfig, else none] [env: VIRTLENS_METADATA]
    #[arg(long, global = true, value_name = "SOURCE")]
    pub(crate) metadata: Option<Metadata>,
    /// Kubeconfig for the API server [default: the pod's service account]
    /// [env: VIRTLENS_KUBECONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// URL of the kubelet, for example https://10.0.0.7:10250 [env:
    /// VIRTLENS_KUBELET_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) kubelet_url: Option<String>,
    /// CA certificates for the kubelet's certificate [default: those of the service
    /// account] [env: VIRTLENS_KUBELET_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubelet_ca: Option<PathBuf>,
    /// Metrics to export: the profile minimal, default or full, then single metrics
    /// to add or to leave out, for example default,+virtlens_kvm_exits_total or
    /// full,-virtlens_halt_* [default: default] [env: VIRTLENS_METRICS]
    #[arg(long, global = true, value_name = "SELECTION")]
    pub(crate) metrics: Option<Selection>,
    /// Loader of the BPF programs: libbpf or aya, if built in [default: libbpf if
    /// built in, else aya] [env: VIRTLENS_LOADER]
    #[arg(long, global = true, value_name = "LOADER")]
    pub(crate) loader: Option<Loader>,
    /// Format of the log: logfmt or json [default: logfmt] [env:
    /// VIRTLENS_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// Lowest level that is logged: error, warn, info or debug [default: info for
    /// run, else warn] [env: VIRTLENS_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Recording to show: the directory of virtlens run --record, or one of its files;
    /// or the URL of an agent, for example https://node-a:9877
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Address to listen on. Without a host, as in :9877, every IPv6 and IPv4
    /// address of the host; port 0 chooses a free port and logs it [default:
    /// :9877] [env: VIRTLENS_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,
    /// YAML file with TLS and users in the format of Prometheus'
    /// exporter-toolkit, reloaded when it changes; --web.config.file is an alias
    /// [env: VIRTLENS_WEB_CONFIG]
    #[arg(long, alias = "web.config.file", value_name = "FILE")]
    pub(crate) web_config: Option<PathBuf>,
    /// Authorization of requests in addition to the web configuration: none or
    /// kubernetes, which authorizes requests by TokenReview and
    /// SubjectAccessReview [default: none] [env: VIRTLENS_WEB_AUTH]
    #[arg(long, value_name = "METHOD")]
    pub(crate) web_auth: Option<WebAuth>,
    /// Users of the web configuration who may trace VMs with POST /api/v1/trace,
    /// separated by commas [default: no user] [env:
    /// VIRTLENS_WEB_TRACE_USERS]
    #[arg(long, value_name = "NAMES")]
    pub(crate) web_trace_users: Option<Users>,
    /// How long a reading is cached [default: 1s] [env: VIRTLENS_MIN_AGE]
    #[arg(long, value_name = "TIME")]
    pub(crate) min_age: Option<Span>,
    /// How long the last values of a VM that ended are exported [default: 1m]
    /// [env: VIRTLENS_LINGER]
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<Span>,
    /// Do not use pinned maps under /sys/fs/bpf/virtlens: counting starts now and
    /// ends with the agent. Required for a second agent on a node [env:
    /// VIRTLENS_NO_PIN]
    #[arg(long)]
    pub(crate) no_pin: bool,
    /// Record all readings in this directory, for commands with --from [default: no
    /// recording] [env: VIRTLENS_RECORD]
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Longest time between two recorded readings, 1s or more: the host is read
    /// then if no client asked for a reading [default: 10s] [env:
    /// VIRTLENS_RECORD_INTERVAL]
    #[arg(long, value_name = "TIME")]
    pub(crate) record_interval: Option<Span>,
    /// Largest size of the recording, MiB; the oldest readings go first [default:
    /// 256] [env: VIRTLENS_RECORD_MAX_MIB]
    #[arg(long, value_name = "MIB")]
    pub(crate) record_max_mib: Option<u64>,
    /// Largest age of recorded readings [default: 24h] [env:
    /// VIRTLENS_RECORD_MAX_AGE]
    #[arg(long, value_name = "TIME")]
    pub(crate) record_max_age: Option<Span>,
    /// Largest size of all incidents, MiB, in addition to that of the recording: when
    /// a warning begins on a VM, the recording of 6 min and a trace are kept apart.
    /// The oldest ones go first; 0 keeps none [default: 64] [env:
    /// VIRTLENS_INCIDENTS_MAX_MIB]
    #[arg(long, value_name = "MIB")]
    pub(crate) incidents_max_mib: Option<u64>,
    /// Also print a table of the VMs every 2 s
    #[arg(long)]
    pub(crate) table: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: snapshot::Output,
    /// Read twice, this long apart, and show rates
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<Span>,
    /// Show a recording: the directory of virtlens run --record, or one of its files
    /// [default with --at: the configured one]; or another agent by its URL
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Show the last recorded reading at this time or before: now, '10 min ago',
    /// -15m or RFC 3339 [default with --from: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// VM to show first: NAMESPACE/POD, name, pod uid or pid of the VMM
    pub(crate) vm: Option<String>,
    /// Time between readings, 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: Span,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,
    /// Show a recording: the directory of virtlens run --record, or one of its files
    /// [default with --at: the configured one]; or another agent by its URL
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Begin with the last recorded reading at this time or before: now, '10 min ago',
    /// -15m or RFC 3339 [default with --from: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// VM to show: NAMESPACE/POD, name, pod uid or pid of the VMM
    pub(crate) vm: Option<String>,
    /// Time over which the placement of running vCPUs is measured; a recording has the
    /// agent's measurements, over 10 s
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) window: Span,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,
    /// Show a recording: the directory of virtlens run --record, or one of its files
    /// [default with --at: the configured one]; or another agent by its URL
    #[arg(long, value_name = "DIR|URL", conflicts_with = "window")]
    pub(crate) from: Option<PathBuf>,
    /// Show the last recorded reading at this time or before: now, '10 min ago', -15m
    /// or RFC 3339 [default with --from: now]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// VM to judge: NAMESPACE/POD, name, pod uid or pid of the VMM
    pub(crate) vm: Option<String>,
    /// Time over which the VMs are observed [default: 10s]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) window: Option<Span>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: doctor::Output,
    /// Judge a recording: the directory of virtlens run --record, or one of its files
    /// [default with --since or --until: the configured one]; or the readings of another
    /// agent by its URL
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<PathBuf>,
    /// Start of the recorded time to judge: '20 min ago', -15m or RFC 3339 [default
    /// with --from: 15 min before its end]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(crate) since: Option<Moment>,
    /// End of the recorded time to judge [default with --from or --since: the last
    /// reading]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(crate) until: Option<Moment>,
    /// Show what changed against a recorded time of the same length that begins here:
    /// findings that appeared, ended or remained, and measured values
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(crate) against: Option<Moment>,
    /// List the checks with their rules and thresholds, and exit
    #[arg(long)]
    pub(crate) checks: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// VM to trace: NAMESPACE/POD, name, pod uid or pid of the VMM
    pub(crate) vm: String,
    /// Duration, 100ms to 10m, or to 30s with --from; Ctrl-C ends the trace early
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(crate) window: Span,
    /// Output file. An existing file is replaced, a symbolic link is refused; "-"
    /// is stdout, with the summary on stderr [default: a new file in this
    /// directory, named after the VM]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Maximum size of the file, MiB [default: 256, or 16 with --from]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) max_size: Option<u64>,
    /// Trace a VM of another node, by the URL of its agent
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Remove everything that agents left in this host's kernel: programs and
    /// counters
    #[arg(long)]
    pub(crate) clean: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: catalogue::Output,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}

//! What each command can be told.

#![expect(
    clippy::doc_markdown,
    reason = "clap prints these texts as they are, and backticks would stand in them"
)]

use std::path::PathBuf;

use clap::Args;
use virtlens_probe::loader::Loader;

use crate::config::{Listen, LogFormat, LogLevel, Metadata, Span, WebAuth};
use crate::views::{catalogue, doctor, snapshot};

#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// YAML file with the settings listen, web_config, web_auth, min_age, linger,
    /// log_format, log_level, node_name, metadata, kubeconfig, kubelet_url,
    /// kubelet_ca, pcpu_series, no_pin, loader, thresholds and root [env:
    /// VIRTLENS_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory below which the host's /proc and /sys are [default: /]
    /// [env: VIRTLENS_ROOT]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Name of the node [default: the host's] [env: VIRTLENS_NODE_NAME,
    /// NODE_NAME]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Where names of pods come from: apiserver, kubelet, file:PATH (a list as
    /// kubectl get pods -A -o json writes it) or none [default: apiserver in a
    /// pod or with --kubeconfig, else none] [env: VIRTLENS_METADATA]
    #[arg(long, global = true, value_name = "SOURCE")]
    pub(crate) metadata: Option<Metadata>,
    /// How the API server is reached [default: the pod's service account]
    /// [env: VIRTLENS_KUBECONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where the kubelet is, such as https://10.0.0.7:10250 [env:
    /// VIRTLENS_KUBELET_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) kubelet_url: Option<String>,
    /// Certificates that the kubelet's is signed by [default: the service
    /// account's] [env: VIRTLENS_KUBELET_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubelet_ca: Option<PathBuf>,
    /// Show the CPU time of each vCPU on each pCPU, in up to as many series as
    /// a VM's vCPUs times the host's CPUs [env: VIRTLENS_PCPU_SERIES]
    #[arg(long, global = true)]
    pub(crate) pcpu_series: bool,
    /// Who loads the BPF programs: libbpf or aya, as far as they are built in
    /// [default: the first of these] [env: VIRTLENS_LOADER]
    #[arg(long, global = true, value_name = "LOADER")]
    pub(crate) loader: Option<Loader>,
    /// Form of the log: logfmt or json [default: logfmt] [env:
    /// VIRTLENS_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    /// What is logged: error, warn, info or debug [default: info for run, else
    /// warn] [env: VIRTLENS_LOG_LEVEL]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Address to serve on; without one, as in :9877, every address of the host,
    /// IPv6 and IPv4; port 0 takes a free one and logs it [default: :9877] [env:
    /// VIRTLENS_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,
    /// YAML file with TLS and users, in the format of Prometheus'
    /// exporter-toolkit, followed as it changes; --web.config.file is the same
    /// [env: VIRTLENS_WEB_CONFIG]
    #[arg(long, alias = "web.config.file", value_name = "FILE")]
    pub(crate) web_config: Option<PathBuf>,
    /// Who says who may ask, beside that: none or kubernetes, which lets pass
    /// whose bearer token may get the path, as its API server says [default:
    /// none] [env: VIRTLENS_WEB_AUTH]
    #[arg(long, value_name = "WHO")]
    pub(crate) web_auth: Option<WebAuth>,
    /// For how long one reading answers all who ask [default: 1s] [env:
    /// VIRTLENS_MIN_AGE]
    #[arg(long, value_name = "TIME")]
    pub(crate) min_age: Option<Span>,
    /// How long a VM that is gone keeps its final values [default: 1m] [env:
    /// VIRTLENS_LINGER]
    #[arg(long, value_name = "TIME")]
    pub(crate) linger: Option<Span>,
    /// Count from now on and leave nothing behind, instead of going on with what
    /// is under /sys/fs/bpf/virtlens; needed for a second agent on a node [env:
    /// VIRTLENS_NO_PIN]
    #[arg(long)]
    pub(crate) no_pin: bool,
    /// Also print a table of the VMs every 2 s
    #[arg(long)]
    pub(crate) table: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// Shape of the output
    #[arg(short, long, value_name = "SHAPE", default_value = "table")]
    pub(crate) output: snapshot::Output,
    /// Read twice, this long apart, and show the rates between
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<Span>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show this VM first: its NAMESPACE/POD, its name, its pod's uid or its
    /// VMM's pid
    pub(crate) vm: Option<String>,
    /// How often the host is read, 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) interval: Span,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// Show one VM only: its NAMESPACE/POD, its name, its pod's uid or its
    /// VMM's pid
    pub(crate) vm: Option<String>,
    /// For how long is watched where vCPUs run
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) window: Span,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Judge one VM only: its NAMESPACE/POD, its name, its pod's uid or its
    /// VMM's pid
    pub(crate) vm: Option<String>,
    /// For how long is watched what the VMs do
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(crate) window: Span,
    /// Shape of the output
    #[arg(short, long, value_name = "SHAPE", default_value = "text")]
    pub(crate) output: doctor::Output,
    /// List the checks with their rules and thresholds, and watch nothing
    #[arg(long)]
    pub(crate) checks: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The VM: its NAMESPACE/POD, its name, its pod's uid or its VMM's pid
    pub(crate) vm: String,
    /// For how long, 100ms to 10m; Ctrl-C ends it before
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(crate) window: Span,
    /// Where to; an existing file is replaced, a symbolic link to a file refused;
    /// "-" is stdout, with the summary on stderr [default: a new file in this
    /// directory, named after the VM]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How large the file may grow, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(crate) max_size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Instead remove all that agents left in the kernel of this host: programs,
    /// and what they counted
    #[arg(long)]
    pub(crate) clean: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Shape of the output
    #[arg(short, long, value_name = "SHAPE", default_value = "text")]
    pub(crate) output: catalogue::Output,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

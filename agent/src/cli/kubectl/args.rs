//! The arguments of `kubectl virtlens`.

#![expect(
    clippy::doc_markdown,
    reason = "clap prints these texts verbatim, backticks included"
)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Span;
use crate::moment::Moment;
use crate::views::{doctor, snapshot};

/// Shows what VM-isolated pods cost on the nodes of a cluster
///
/// Finds the node of a pod and the agent on it, and asks the agent. Without a pod it asks the
/// agents of all nodes with pods of the namespace, with -A those of all nodes. A node that does
/// not answer is reported, and the others are shown; the exit code is then 1.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-virtlens",
    bin_name = "kubectl virtlens",
    version,
    term_width = 80
)]
pub(super) struct Kubectl {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show VMs once
    #[command(after_help = "Example: kubectl virtlens snapshot -A --interval 2s")]
    Snapshot(SnapshotArgs),
    /// Show VMs live: those of several nodes, or one in depth
    #[command(after_help = "Example: kubectl virtlens top -A")]
    Top(TopArgs),
    /// Draw the CPUs of nodes with the vCPUs on them, and mismatches
    #[command(after_help = "Example: kubectl virtlens topology web-0")]
    Topology(TopologyArgs),
    /// Diagnose VMs: findings and remedies, the worst first
    ///
    /// The exit code is 0 without findings, 2 with findings, and 1 if VMs cannot be judged.
    #[command(after_help = "Example: kubectl virtlens doctor -n shop web-0 --since -15m")]
    Doctor(DoctorArgs),
    /// Take a trace of a VM on its node, for the Perfetto viewer
    ///
    /// The agent needs authorization, and you the permission to trace.
    #[command(after_help = "Example: kubectl virtlens trace web-0 --for 5s -o web.pftrace")]
    Trace(TraceArgs),
    /// List incidents of warnings and alerts, with their recordings and traces
    #[command(after_help = "Example: kubectl virtlens incidents -n shop web-0")]
    Incidents(IncidentsArgs),
    /// Show the page of a node in a browser, at a pod's VM
    ///
    /// Serves the page for browsers on a free port of 127.0.0.1, prints its address, and passes
    /// requests on to the agent until Ctrl-C. With credentials for the agent, the address has a
    /// code that is valid once. Without, other users of this host can use the port, too, as with
    /// kubectl port-forward, and the page asks for a password or a token if the agent requires one.
    #[command(after_help = "Example: kubectl virtlens ui web-0")]
    Ui(UiArgs),
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options for the cluster")]
pub(super) struct ClusterArgs {
    /// Namespace of the pods [default: that of the kubeconfig's context]
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        conflicts_with = "all_namespaces"
    )]
    pub(super) namespace: Option<String>,
    /// Show the VMs of all namespaces and nodes
    #[arg(short = 'A', long, global = true)]
    pub(super) all_namespaces: bool,
    /// Show the VMs of this node only
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) node: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Namespace of the agents [default: virtlens] [env: VIRTLENS_AGENTS_NAMESPACE]
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) agents_namespace: Option<String>,
    /// Ask the agents through the API server's proxy, which needs get on pods/proxy, instead of
    /// a forwarded port, which needs get and create on pods/portforward. The proxy removes
    /// credentials for the agent
    #[arg(long, global = true)]
    pub(super) proxy: bool,
    #[command(flatten)]
    pub(super) login: LoginArgs,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options for agents with TLS or authorization")]
pub(super) struct LoginArgs {
    /// File with the bearer token for the agents
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "proxy")]
    pub(super) token_file: Option<PathBuf>,
    /// Use a token of this service account, valid for an hour
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE/NAME",
        conflicts_with_all = ["proxy", "token_file"]
    )]
    pub(super) service_account: Option<String>,
    /// Use your kubeconfig's token. A node that is taken over could use it with all your rights
    #[arg(
        long,
        global = true,
        conflicts_with_all = ["proxy", "token_file", "service_account", "insecure_skip_tls_verify"]
    )]
    pub(super) own_token: bool,
    /// CA certificates for the agents' certificates [default: those of the system]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "proxy")]
    pub(super) ca_file: Option<PathBuf>,
    /// Client certificate for the agents, in PEM
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_key",
        conflicts_with = "proxy"
    )]
    pub(super) client_certificate: Option<PathBuf>,
    /// Its key
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_certificate"
    )]
    pub(super) client_key: Option<PathBuf>,
    /// Name in the agents' certificates [default: virtlens.NAMESPACE.svc]
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "proxy")]
    pub(super) server_name: Option<String>,
    /// Accept any certificate of the agents
    #[arg(long, global = true, conflicts_with = "proxy")]
    pub(super) insecure_skip_tls_verify: bool,
}

#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    /// Pod of the VM [default: all pods of the namespace]
    pub(super) pod: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: snapshot::Output,
    /// Read twice, this long apart, and show rates
    #[arg(long, value_name = "TIME")]
    pub(super) interval: Option<Span>,
    /// Show the last recorded readings at this time or before: '10 min ago', -15m or RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) at: Option<Moment>,
}

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Pod of the VM [default: all pods of the namespace]
    pub(super) pod: Option<String>,
    /// Time between readings, 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(super) interval: Span,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(super) ascii: bool,
}

#[derive(Debug, Args)]
pub(super) struct TopologyArgs {
    /// Pod of the VM [default: all pods of the namespace]
    pub(super) pod: Option<String>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub(super) ascii: bool,
    /// Show the last recorded readings at this time or before: '10 min ago', -15m or RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) at: Option<Moment>,
}

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Pod of the VM [default: all pods of the namespace]
    pub(super) pod: Option<String>,
    /// Time over which the VMs are observed [default: 10s]
    #[arg(long = "for", value_name = "TIME")]
    pub(super) window: Option<Span>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(super) output: doctor::Output,
    /// Judge what the agents recorded from this time on: '20 min ago', -15m or RFC 3339
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(super) since: Option<Moment>,
    /// End of the recorded time to judge [default with --since: now]
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window"
    )]
    pub(super) until: Option<Moment>,
    /// Show what changed on a pod's VM against a recorded time of the same length that begins here
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        conflicts_with = "window",
        requires = "pod"
    )]
    pub(super) against: Option<Moment>,
}

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Pod of the VM
    pub(super) pod: String,
    /// Duration, 100ms to 30s
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(super) window: Span,
    /// Output file. An existing file is replaced, a symbolic link is refused; "-" is stdout
    /// [default: a new file in this directory, named after the VM]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Maximum size of the file, MiB [default: 16]
    #[arg(long, value_name = "MIB")]
    pub(super) max_size: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct IncidentsArgs {
    #[command(subcommand)]
    pub(super) command: Option<IncidentsCommand>,
    #[command(flatten)]
    pub(super) list: ListArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Pod of the VM [default: all pods of the namespace]
    pub(super) pod: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: snapshot::Output,
}

#[derive(Debug, Subcommand)]
pub(super) enum IncidentsCommand {
    /// Show an incident: its findings, and the VM before and during it
    #[command(after_help = "Example: kubectl virtlens incidents show ID -n shop")]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Incident to show, as kubectl virtlens incidents lists it
    pub(super) id: String,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(super) output: doctor::Output,
    /// Save the trace of the incident in this file
    #[arg(long, value_name = "FILE")]
    pub(super) save_trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct UiArgs {
    /// Pod whose VM is shown [default: all VMs of the node that --node selects]
    pub(super) pod: Option<String>,
    /// Do not open a browser
    #[arg(long)]
    pub(super) no_open: bool,
}

impl ClusterArgs {
    /// Whether requests to an agent get credentials that its other clients do not have: for the
    /// agent, or for the API server's proxy.
    pub(super) fn has_credentials(&self) -> bool {
        let login = &self.login;
        let has_token = login.token_file.is_some() || login.service_account.is_some();
        self.proxy || has_token || login.own_token || login.client_certificate.is_some()
    }
}

impl Command {
    /// The pod of the command.
    pub(super) fn pod(&self) -> Option<&str> {
        let pod = match self {
            Self::Snapshot(args) => &args.pod,
            Self::Top(args) => &args.pod,
            Self::Topology(args) => &args.pod,
            Self::Doctor(args) => &args.pod,
            Self::Trace(args) => return Some(&args.pod),
            Self::Incidents(args) => &args.list.pod,
            Self::Ui(args) => &args.pod,
        };
        pod.as_deref()
    }
}

//! Common steps of the live commands: they wait, read twice, and report errors.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use virtlens_model::snapshot::{Snapshot, Vm};

use crate::cli::args::{DoctorArgs, TopArgs, TopologyArgs, TraceArgs};
use crate::cli::stdout::{print, table_style};
use crate::collect::Collector;
use crate::config::{ConfigError, Span};
use crate::process;
use crate::term::Style;
use crate::views::doctor::Diagnosis;
use crate::views::shortfall::is_read;
use crate::views::top::theme::Theme;
use crate::views::topology::View;
use crate::views::{doctor, pick, snapshot, top, topology, trace};

pub(crate) fn watch(collector: &mut Collector, args: &TopArgs) -> anyhow::Result<ExitCode> {
    let interval = interval_of(args.interval)?;
    let style = table_style();
    if !top::has_terminal() {
        pick::pick(&collector.collect().vms, args.vm.as_deref())?;
        let text = snapshot::text(collector, snapshot::Output::Table, Some(interval), style)?;
        return print(&text);
    }
    let theme = Theme {
        color: style.color,
        ascii: args.ascii,
    };
    top::run(collector, args.vm.as_deref(), interval, theme)?;
    Ok(ExitCode::SUCCESS)
}

/// The interval of `top`.
pub(crate) fn interval_of(interval: Span) -> Result<Duration, ConfigError> {
    let (shortest, longest) = (top::INTERVALS[0], top::INTERVALS[top::INTERVALS.len() - 1]);
    if (shortest..=longest).contains(&interval.0) {
        return Ok(interval.0);
    }
    let text = "--interval: expected 100ms to 10s (see virtlens top --help)";
    Err(ConfigError::Usage(text.to_owned()))
}

pub(crate) fn show_topology(
    collector: &mut Collector,
    args: &TopologyArgs,
) -> anyhow::Result<ExitCode> {
    collector.collect_judged();
    std::thread::sleep(args.window.0);
    print(&drawn(&collector.collect_judged(), args)?)
}

/// The drawing of `topology`.
pub(crate) fn drawn(snapshot: &Snapshot, args: &TopologyArgs) -> anyhow::Result<String> {
    let picked = pick::pick(&snapshot.vms, args.vm.as_deref())?;
    let shows = |vm: &Vm| picked.iter().any(|one| std::ptr::eq(*one, vm));
    let view = View {
        style: table_style(),
        ascii: args.ascii,
    };
    Ok(topology::render(snapshot, shows, view))
}

pub(crate) fn diagnose(collector: &mut Collector, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let window = window_of(args.window)?;
    let first = collector.collect_judged();
    if !is_read(&first) {
        let reason = first.sources.first().map_or("", |source| &source.reason);
        anyhow::bail!("cannot read the host: {reason}");
    }
    // Before the wait, so that a wrong name is reported at once.
    pick::pick(&first.vms, args.vm.as_deref())?;
    std::thread::sleep(window);
    let snapshot = collector.collect_judged();
    anyhow::ensure!(
        snapshot.clock_ns > first.clock_ns,
        "cannot read the host a second time"
    );
    let window = Duration::from_nanos(snapshot.clock_ns - first.clock_ns);
    let vms = pick::pick(&snapshot.vms, args.vm.as_deref())?;
    anyhow::ensure!(
        args.vm.is_none() || vms.iter().any(|vm| vm.findings.is_some()),
        "cannot judge the VM: it started or ended during the interval; try again"
    );
    anyhow::ensure!(
        !vms.is_empty() || process::is_root(),
        "no VM found; without root VMs of other users are not visible: run as root"
    );
    let diagnosis = Diagnosis::new(&snapshot, &vms, window, collector.bounds());
    report(&diagnosis, &snapshot, args.output)
}

/// Time over which `doctor` observes the VMs by default.
const OBSERVED: Duration = Duration::from_secs(10);

/// The time over which `doctor` observes the VMs.
pub(crate) fn window_of(window: Option<Span>) -> Result<Duration, ConfigError> {
    let window = window.map_or(OBSERVED, |span| span.0);
    if window >= Duration::from_secs(1) {
        return Ok(window);
    }
    let text = "--for: expected 1s or more (see virtlens doctor --help)";
    Err(ConfigError::Usage(text.to_owned()))
}

/// Prints a diagnosis; the exit code shows whether it has findings.
pub(crate) fn report(
    diagnosis: &Diagnosis<'_>,
    snapshot: &Snapshot,
    output: doctor::Output,
) -> anyhow::Result<ExitCode> {
    let code = print(&match output {
        doctor::Output::Text => diagnosis.text(snapshot, table_style()),
        doctor::Output::Json => serde_json::to_string_pretty(diagnosis)? + "\n",
    })?;
    Ok(if diagnosis.has_findings() {
        ExitCode::from(2)
    } else {
        code
    })
}

/// Largest size of a trace by default, MiB.
const DEFAULT_MIB: u64 = 256;

pub(crate) fn follow(collector: &mut Collector, args: TraceArgs) -> anyhow::Result<ExitCode> {
    if !(Duration::from_millis(100)..=Duration::from_mins(10)).contains(&args.window.0) {
        let text = "--for: expected 100ms to 10m (see virtlens trace --help)";
        return Err(ConfigError::Usage(text.to_owned()).into());
    }
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    let order = trace::Order {
        vm: args.vm,
        window: args.window.0,
        file: args.output,
        max_bytes: args.max_size.unwrap_or(DEFAULT_MIB) << 20,
    };
    let report = trace::run(collector, &order)?;
    if to_stdout {
        eprint!("{}", report.text(Style::default()));
        return Ok(ExitCode::SUCCESS);
    }
    print(&report.text(table_style()))
}

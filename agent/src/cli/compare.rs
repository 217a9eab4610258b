//! `virtlens doctor --against`: two windows of a recording.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

use virtlens_model::judge::compare::{Observed, compare};
use virtlens_model::snapshot::Vm;
use virtlens_record::{Recorded, Recording};

use crate::cli::args::DoctorArgs;
use crate::cli::past::{instant_ns, judged_time, open};
use crate::cli::stdout::{print, table_style};
use crate::config::ConfigError;
use crate::moment::Moment;
use crate::term::shown;
use crate::views::compare::{Differences, Readings};
use crate::views::{doctor, pick};

/// Compares the judged window with one of the same length that begins at `against`.
pub(crate) fn diagnose(
    path: &Path,
    args: &DoctorArgs,
    against: Moment,
) -> anyhow::Result<ExitCode> {
    let recording = open(path)?;
    let judged = judged_time(&recording, args)?;
    let length_ns = judged.end().saturating_sub(*judged.start());
    let start_ns = instant_ns(against);
    let compared = start_ns..=start_ns.saturating_add(length_ns);
    if compared.start() <= judged.end() && judged.start() <= compared.end() {
        let [since, until] = [compared.start(), compared.end()].map(|time| shown(*time));
        let text = format!("--against: its time, {since} to {until}, overlaps the judged time");
        return Err(ConfigError::Usage(text).into());
    }
    let (before, readings_before) = observe(&recording, compared)?;
    let (now, readings_now) = observe(&recording, judged)?;
    let vms = before.vms().iter().chain(now.vms());
    let vms: Vec<Vm> = vms.map(|past| past.vm.clone()).collect();
    pick::pick(&vms, args.vm.as_deref())?;
    let is_wanted = |vm: &Vm| {
        let wanted = args.vm.as_deref();
        wanted.is_none_or(|wanted| pick::is_called(vm, wanted))
    };
    let comparison = compare(&before, &now);
    let node = recording.header().map_or("", |header| &header.node);
    let readings = [readings_before, readings_now];
    let differences = Differences::new(node, readings, &comparison, is_wanted);
    let code = print(&match args.output {
        doctor::Output::Text => differences.text(table_style()),
        doctor::Output::Json => serde_json::to_string_pretty(&differences)? + "\n",
    })?;
    Ok(if differences.has_findings() {
        ExitCode::from(2)
    } else {
        code
    })
}

/// The readings of a time, ns since 1970.
fn observe(
    recording: &Recording,
    time: RangeInclusive<u64>,
) -> anyhow::Result<(Observed, Readings)> {
    let (since_ns, until_ns) = time.into_inner();
    let mut observed = Observed::default();
    let mut readings: Option<Readings> = None;
    for recorded in recording.between(since_ns..until_ns.saturating_add(1)) {
        let Recorded { unix_ns, snapshot } = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                tracing::warn!(%error, "a part of the recording is unreadable");
                continue;
            }
        };
        observed.add(snapshot, unix_ns);
        let first_ns = readings.map_or(unix_ns, |readings| readings.first_ns);
        readings = Some(Readings {
            first_ns,
            last_ns: unix_ns,
            count: readings.map_or(1, |readings| readings.count + 1),
        });
    }
    let Some(readings) = readings else {
        let first = recording.first_ns().map_or_else(String::new, shown);
        let (since, until) = (shown(since_ns), shown(until_ns));
        anyhow::bail!("no reading between {since} and {until}; the recording begins at {first}");
    };
    Ok((observed, readings))
}

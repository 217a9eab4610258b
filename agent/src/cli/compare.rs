//! `virtlens doctor --against`: two windows of a recording, or of what an agent recorded.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use virtlens_kube::Remote;
use virtlens_model::judge::compare::{Observed, compare};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_record::{Recorded, Recording};

use crate::cli::args::DoctorArgs;
use crate::cli::past::{instant_ns, judged_time, open};
use crate::cli::stdout::{print, table_style};
use crate::config::ConfigError;
use crate::moment::{Moment, PAST_WINDOW, unix_ns_of};
use crate::term::{printable, shown};
use crate::views::compare::{Differences, Readings};
use crate::views::{doctor, pick};

/// The VMs to compare.
pub(super) struct Wanted<'a> {
    /// One VM; `None` = all.
    pub(super) vm: Option<&'a str>,
    pub(super) output: doctor::Output,
}

/// Compares the judged window of a recording with one of the same length that begins at
/// `against`.
pub(crate) fn diagnose(
    path: &Path,
    args: &DoctorArgs,
    against: Moment,
) -> anyhow::Result<ExitCode> {
    let recording = open(path)?;
    let judged = judged_time(&recording, args)?;
    let compared = compared_time(&judged, against)?;
    let wanted = Wanted {
        vm: args.vm.as_deref(),
        output: args.output,
    };
    let windows = [observe(&recording, compared)?, observe(&recording, judged)?];
    let node = recording.header().map_or("", |header| &header.node);
    report(node, windows, &wanted)
}

/// Compares two windows of what an agent recorded, as [`diagnose`] does. The judged one ends now
/// by default.
pub(super) fn diagnose_remote(
    agent: &Remote,
    (since, until): (Option<Moment>, Option<Moment>),
    against: Moment,
    wanted: &Wanted<'_>,
) -> anyhow::Result<ExitCode> {
    let until_ns = instant_ns(until.unwrap_or(Moment::At(Timestamp::now())));
    let window_ns = u64::try_from(PAST_WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let since_ns = since.map_or(until_ns.saturating_sub(window_ns), instant_ns);
    let judged = since_ns..=until_ns;
    let compared = compared_time(&judged, against)?;
    let mut node = String::new();
    let mut observe = |time: RangeInclusive<u64>| -> anyhow::Result<Compared> {
        let ends = [*time.start(), *time.end()];
        let [since, until] = ends.map(|ns| Timestamp::from_nanosecond(ns.into()));
        let (since, until) = (since?.to_string(), until?.to_string());
        let mut window = Window::default();
        let lost = agent.history(wanted.vm, &since, &until, |reading| {
            node.clone_from(&reading.node.name);
            let unix_ns = unix_ns_of(&reading);
            window.add(reading, unix_ns);
        })?;
        for error in lost {
            tracing::warn!(%error, "a part of the recording is unreadable");
        }
        let none = || format!("no reading between {since} and {until}");
        window.finish().with_context(none)
    };
    let windows = [observe(compared)?, observe(judged)?];
    report(&printable(&node), windows, wanted)
}

/// The time of the same length as `judged` that begins at `against`, ns since 1970.
fn compared_time(
    judged: &RangeInclusive<u64>,
    against: Moment,
) -> Result<RangeInclusive<u64>, ConfigError> {
    let length_ns = judged.end().saturating_sub(*judged.start());
    let start_ns = instant_ns(against);
    let compared = start_ns..=start_ns.saturating_add(length_ns);
    if compared.start() <= judged.end() && judged.start() <= compared.end() {
        let [since, until] = [compared.start(), compared.end()].map(|time| shown(*time));
        let text = format!("--against: its time, {since} to {until}, overlaps the judged time");
        return Err(ConfigError::Usage(text));
    }
    Ok(compared)
}

/// A window that has readings.
type Compared = (Observed, Readings);

/// The readings of a window.
#[derive(Default)]
struct Window {
    observed: Observed,
    /// Their number and times; `None` if there are none.
    readings: Option<Readings>,
}

impl Window {
    fn add(&mut self, snapshot: Snapshot, unix_ns: u64) {
        self.observed.add(snapshot, unix_ns);
        let first_ns = self.readings.map_or(unix_ns, |readings| readings.first_ns);
        self.readings = Some(Readings {
            first_ns,
            last_ns: unix_ns,
            count: self.readings.map_or(1, |readings| readings.count + 1),
        });
    }

    fn finish(self) -> Option<Compared> {
        Some((self.observed, self.readings?))
    }
}

/// The readings of a time, ns since 1970.
fn observe(recording: &Recording, time: RangeInclusive<u64>) -> anyhow::Result<Compared> {
    let (since_ns, until_ns) = time.into_inner();
    let mut window = Window::default();
    for recorded in recording.between(since_ns..until_ns.saturating_add(1)) {
        match recorded {
            Ok(Recorded { unix_ns, snapshot }) => window.add(snapshot, unix_ns),
            Err(error) => tracing::warn!(%error, "a part of the recording is unreadable"),
        }
    }
    window.finish().with_context(|| {
        let first = recording.first_ns().map_or_else(String::new, shown);
        let (since, until) = (shown(since_ns), shown(until_ns));
        format!("no reading between {since} and {until}; the recording begins at {first}")
    })
}

/// Prints the differences; the exit code shows whether the later window has findings.
fn report(node: &str, windows: [Compared; 2], wanted: &Wanted<'_>) -> anyhow::Result<ExitCode> {
    let [(before, readings_before), (now, readings_now)] = windows;
    let vms = before.vms().iter().chain(now.vms());
    let vms: Vec<Vm> = vms.map(|past| past.vm.clone()).collect();
    pick::pick(&vms, wanted.vm)?;
    let is_wanted = |vm: &Vm| wanted.vm.is_none_or(|wanted| pick::is_called(vm, wanted));
    let comparison = compare(&before, &now);
    let readings = [readings_before, readings_now];
    let differences = Differences::new(node, readings, &comparison, is_wanted);
    let code = print(&match wanted.output {
        doctor::Output::Text => differences.text(table_style()),
        doctor::Output::Json => serde_json::to_string_pretty(&differences)? + "\n",
    })?;
    Ok(if differences.has_findings() {
        ExitCode::from(2)
    } else {
        code
    })
}

//! Commands on a recording.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use virtlens_model::judge::past::{Past, PastVm};
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_record::{Recorded, Recording};

use crate::cli::args::{DoctorArgs, SnapshotArgs};
use crate::cli::live::report;
use crate::cli::stdout::{print, table_style};
use crate::config::{Config, ConfigError};
use crate::moment::{Moment, PAST_WINDOW, unix_ns};
use crate::term::shown;
use crate::views::doctor::Diagnosis;
use crate::views::{pick, snapshot};

/// The recording of a command with `--from`, or with a flag for a past time; `None` if it
/// shows this host.
pub(crate) fn path(
    config: &Config,
    from: Option<&Path>,
    time: Option<&str>,
) -> Result<Option<PathBuf>, ConfigError> {
    let configured = || config.record.clone();
    match (from, time) {
        (Some(from), _) => Ok(Some(from.to_owned())),
        (None, None) => Ok(None),
        (None, Some(flag)) => configured().map(Some).ok_or_else(|| {
            let text = format!("{flag} needs a recording; name its directory with --from");
            ConfigError::Usage(text)
        }),
    }
}

/// A recording is not observed for a time.
pub(crate) fn refuse_window(args: &DoctorArgs) -> Result<(), ConfigError> {
    if args.window.is_none() {
        return Ok(());
    }
    let text = "--for is for a live VM; use --since and --until for a recording";
    Err(ConfigError::Usage(text.to_owned()))
}

pub(crate) fn open(path: &Path) -> anyhow::Result<Recording> {
    let opened = Recording::open(path);
    let (recording, refused) =
        opened.with_context(|| format!("cannot read the recording {}", path.display()))?;
    for error in &refused {
        tracing::warn!(%error, "a part of the recording is unreadable");
    }
    if recording.first_ns().is_none() {
        anyhow::bail!("no reading in the recording {}", path.display());
    }
    Ok(recording)
}

/// The reading at a time, ns since 1970.
pub(super) fn reading_at(recording: &Recording, unix_ns: u64) -> anyhow::Result<Recorded> {
    let found = recording.at(unix_ns)?;
    found.with_context(|| {
        let first = recording.first_ns().map_or_else(String::new, shown);
        format!(
            "no reading at {} or before; the recording begins at {first}",
            shown(unix_ns)
        )
    })
}

/// `snapshot`: a past reading, or the usage between two.
pub(crate) fn show(path: &Path, args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let at_ns = args.at.map_or(u64::MAX, instant_ns);
    let interval = args.interval.map(|span| span.0);
    print(&usage(&open(path)?, at_ns, interval, args.output)?)
}

/// The text of a past reading, or of the usage in an interval before it.
pub(super) fn usage(
    recording: &Recording,
    at_ns: u64,
    interval: Option<Duration>,
    output: snapshot::Output,
) -> anyhow::Result<String> {
    let now = reading_at(recording, at_ns)?;
    let before = match interval {
        None => None,
        Some(interval) => {
            let before = reading_before(recording, &now, interval)?;
            anyhow::ensure!(
                before.snapshot.clock_ns < now.snapshot.clock_ns,
                "the agent was restarted between the readings of {} and {}",
                shown(before.unix_ns),
                shown(now.unix_ns)
            );
            Some(before.snapshot)
        }
    };
    let text = snapshot::of(&now.snapshot, before.as_ref(), output, table_style())?;
    Ok(match output {
        snapshot::Output::Table => format!("reading of {}\n{text}", shown(now.unix_ns)),
        snapshot::Output::Json => text,
    })
}

/// The reading in front of an interval that ends with another one.
fn reading_before(
    recording: &Recording,
    now: &Recorded,
    interval: Duration,
) -> anyhow::Result<Recorded> {
    let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    reading_at(recording, now.unix_ns.saturating_sub(interval_ns))
}

/// The interval, if its readings are of one agent and so have usage between them.
pub(super) fn known_interval(
    recording: &Recording,
    now: &Recorded,
    interval: Duration,
) -> Option<Duration> {
    let before = reading_before(recording, now, interval).ok()?;
    (before.snapshot.clock_ns < now.snapshot.clock_ns).then_some(interval)
}

/// The time that `doctor` judges, ns since 1970.
pub(crate) fn judged_time(
    recording: &Recording,
    args: &DoctorArgs,
) -> anyhow::Result<RangeInclusive<u64>> {
    let until_ns = match args.until {
        Some(until) => instant_ns(until),
        None => reading_at(recording, u64::MAX)?.unix_ns,
    };
    let window_ns = u64::try_from(PAST_WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let before_ns = until_ns.saturating_sub(window_ns);
    Ok(args.since.map_or(before_ns, instant_ns)..=until_ns)
}

/// `doctor`: the findings of a past time.
pub(crate) fn diagnose(
    path: &Path,
    args: &DoctorArgs,
    config: &Config,
) -> anyhow::Result<ExitCode> {
    let recording = open(path)?;
    let (since_ns, until_ns) = judged_time(&recording, args)?.into_inner();
    let mut judged = Judged::default();
    for recorded in recording.between(since_ns..until_ns.saturating_add(1)) {
        match recorded {
            Ok(Recorded { unix_ns, snapshot }) => judged.add(snapshot, unix_ns),
            Err(error) => tracing::warn!(%error, "a part of the recording is unreadable"),
        }
    }
    judged.report(args, config)?.with_context(|| {
        let first = recording.first_ns().map_or_else(String::new, shown);
        let (since, until) = (shown(since_ns), shown(until_ns));
        format!("no reading between {since} and {until}; the recording begins at {first}")
    })
}

/// Readings that `doctor` judges together.
#[derive(Default)]
pub(super) struct Judged {
    past: Past,
    first_ns: Option<u64>,
    /// Time and node of the last one.
    last: Option<(u64, Snapshot)>,
}

impl Judged {
    /// Whether it has no reading.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Adds the next reading.
    pub(super) fn add(&mut self, snapshot: Snapshot, unix_ns: u64) {
        self.first_ns = self.first_ns.or(Some(unix_ns));
        self.last = Some((unix_ns, snapshot.without_vms()));
        self.past.add(snapshot, unix_ns);
    }

    /// Prints the findings; `None` without readings.
    pub(super) fn report(
        self,
        args: &DoctorArgs,
        config: &Config,
    ) -> anyhow::Result<Option<ExitCode>> {
        let Some((snapshot, past, window)) = self.finish() else {
            return Ok(None);
        };
        let vms: Vec<&Vm> = pick::pick(&snapshot.vms, args.vm.as_deref())?;
        let diagnosis = Diagnosis::new(&snapshot, &vms, window, &config.bounds).held(&past);
        report(&diagnosis, &snapshot, args.output).map(Some)
    }

    /// The node with its judged VMs, when their findings held, and the time of the readings;
    /// `None` without readings.
    pub(super) fn finish(self) -> Option<(Snapshot, Past, Duration)> {
        let (first_ns, (last_ns, node)) = (self.first_ns?, self.last?);
        let snapshot = Snapshot {
            vms: self.past.vms().iter().map(PastVm::judged).collect(),
            ..node
        };
        let window = Duration::from_nanos(last_ns.saturating_sub(first_ns));
        Some((snapshot, self.past, window))
    }
}

/// The instant of a moment of the command line, ns since 1970.
pub(crate) fn instant_ns(moment: Moment) -> u64 {
    unix_ns(moment.instant(Timestamp::now()))
}

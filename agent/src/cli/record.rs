//! `virtlens record`: recordings for other programs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use virtlens_export::ExtraLabel;
use virtlens_record::{Recorded, Recording};

use crate::cli::args::ExportArgs;
use crate::cli::stdout::print_while_read;
use crate::config::{Config, ConfigError};
use crate::moment::unix_ns;
use crate::term::shown;
use crate::views::export::{Exporter, Outcome, Output};
use crate::views::pick;

/// Prints the readings of a time. Only one segment of the recording is in memory.
pub(crate) fn export(config: &Config, args: &ExportArgs) -> anyhow::Result<ExitCode> {
    check_labels(args)?;
    let path = args.from.as_ref().or(config.record.as_ref());
    let path = path.ok_or_else(|| {
        let text = "record export needs a recording; name its directory with --from";
        ConfigError::Usage(text.to_owned())
    })?;
    let opened = Recording::open(path);
    let (recording, refused) =
        opened.with_context(|| format!("cannot read the recording {}", path.display()))?;
    let mut is_whole = refused.is_empty();
    for error in &refused {
        tracing::warn!(%error, "a part of the recording is unreadable");
    }
    let now = Timestamp::now();
    let since_ns = args.since.map_or(0, |since| unix_ns(since.instant(now)));
    let until_ns = args
        .until
        .map_or(u64::MAX, |until| unix_ns(until.instant(now)));
    let mut exporter = Exporter::new(args.output, args.vm.clone(), &config.metrics, &args.labels);
    let (mut text, mut written, mut too_early) = (exporter.start(), 0_u64, 0_u64);
    for recorded in recording.between(since_ns..until_ns.saturating_add(1)) {
        let Recorded { unix_ns, snapshot } = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                tracing::warn!(%error, "a part of the recording is unreadable");
                is_whole = false;
                continue;
            }
        };
        match exporter.add(snapshot, unix_ns, &mut text)? {
            Outcome::Written => written += 1,
            Outcome::TooEarly => too_early += 1,
            Outcome::Empty => {}
        }
        if !text.is_empty() && !print_while_read(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        text.clear();
    }
    if written == 0 {
        return Err(nothing(path, &recording, args.vm.as_deref()));
    }
    text.push_str(exporter.end());
    print_while_read(&text)?;
    if too_early > 0 {
        tracing::warn!(
            readings = too_early,
            "left out readings that are not later than the one before: the clock was set back"
        );
    }
    Ok(if is_whole && too_early == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Labels exist in one format only, and once.
fn check_labels(args: &ExportArgs) -> Result<(), ConfigError> {
    let usage = |text| Err(ConfigError::Usage(text));
    if args.output != Output::Openmetrics && !args.labels.is_empty() {
        return usage("--label: expected -o openmetrics".to_owned());
    }
    let mut names = BTreeSet::new();
    let mut labels = args.labels.iter().map(ExtraLabel::name);
    match labels.find(|name| !names.insert(*name)) {
        Some(name) => usage(format!("--label: {name} is there twice")),
        None => Ok(()),
    }
}

/// The reason why no reading was exported.
fn nothing(path: &Path, recording: &Recording, vm: Option<&str>) -> anyhow::Error {
    let path = path.display();
    let Some(first_ns) = recording.first_ns() else {
        return anyhow::anyhow!("no reading in the recording {path}");
    };
    let last = recording.at(u64::MAX).ok().flatten();
    if let Some(error) = last.and_then(|last| pick::pick(&last.snapshot.vms, vm).err()) {
        return error.into();
    }
    let first = shown(first_ns);
    anyhow::anyhow!("no reading in this time; the recording {path} begins at {first}")
}

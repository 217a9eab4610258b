//! Views of a recording: `topology` and `top`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use virtlens_record::Recorded;

use crate::cli::args::{TopArgs, TopologyArgs};
use crate::cli::live::{drawn, interval_of};
use crate::cli::past::{instant_ns, known_interval, open, reading_at, usage};
use crate::cli::stdout::{print, table_style};
use crate::term::shown;
use crate::views::snapshot::Output;
use crate::views::top::theme::Theme;
use crate::views::top::timeline::Timeline;
use crate::views::{pick, top};

/// `topology`: the placement in a past reading, as the agent judged it.
pub(crate) fn show_topology(path: &Path, args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    let at_ns = args.at.map_or(u64::MAX, instant_ns);
    let Recorded { unix_ns, snapshot } = reading_at(&open(path)?, at_ns)?;
    anyhow::ensure!(
        !snapshot.host.online().is_empty(),
        "the reading of {} does not have the host's CPUs",
        shown(unix_ns)
    );
    let drawing = drawn(&snapshot, args)?;
    print(&format!("reading of {}\n{drawing}", shown(unix_ns)))
}

/// `top`: a recording from a past reading on; without a terminal the table of that reading.
pub(crate) fn watch(path: &Path, args: &TopArgs) -> anyhow::Result<ExitCode> {
    let interval = interval_of(args.interval)?;
    let recording = open(path)?;
    let at_ns = args.at.map_or(u64::MAX, instant_ns);
    let first = reading_at(&recording, at_ns)?;
    let unix_ns = first.unix_ns;
    pick::pick(&first.snapshot.vms, args.vm.as_deref())?;
    if !top::has_terminal() {
        let interval = known_interval(&recording, &first, interval);
        return print(&usage(&recording, unix_ns, interval, Output::Table)?);
    }
    let theme = Theme {
        color: table_style().color,
        ascii: args.ascii,
    };
    let (marks, lost) = recording.marks();
    let message = match (lost.as_slice(), lost.len()) {
        ([], _) => String::new(),
        ([error, ..], count) => format!("{count} parts are unreadable: {error}"),
    };
    let timeline = Timeline::new(marks, unix_ns).context("the recording is unreadable")?;
    top::run_recorded(recording, timeline, args.vm.as_deref(), message, theme)?;
    Ok(ExitCode::SUCCESS)
}

//! Commands on another node's agent: `--from URL`.

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use virtlens_kube::{Endpoint, Remote};
use virtlens_model::snapshot::Snapshot;

use crate::cli::args::{ConnectArgs, DoctorArgs, SnapshotArgs, TopArgs, TopologyArgs};
use crate::cli::compare::{Wanted, diagnose_remote};
use crate::cli::live::{drawn, interval_of, window_of};
use crate::cli::past::Judged;
use crate::cli::stdout::{print, table_style};
use crate::config::{Config, ConfigError};
use crate::moment::{Moment, PAST_WINDOW, unix_ns_of};
use crate::term::printable;
use crate::views::snapshot::Output;
use crate::views::top::theme::Theme;
use crate::views::{pick, snapshot, top};

/// Time between two readings of `doctor`. The agent judges every 10 s.
pub(super) const JUDGED_EVERY: Duration = Duration::from_secs(5);

/// The agent of a command with `--from URL`; `None` for this host or a recording.
pub(crate) fn agent(
    from: Option<&Path>,
    connect: &ConnectArgs,
) -> Result<Option<Remote>, ConfigError> {
    let url = from.and_then(url);
    let ConnectArgs {
        token_file,
        user,
        password_file,
        ca_file,
        client_certificate,
        client_key,
    } = connect;
    let Some(url) = url else {
        // Each user has a password_file.
        let files = [
            token_file,
            password_file,
            ca_file,
            client_certificate,
            client_key,
        ];
        if files.into_iter().any(Option::is_some) {
            let text = "credentials are for another agent; name it with --from URL";
            return Err(ConfigError::Usage(text.to_owned()));
        }
        return Ok(None);
    };
    let endpoint = Endpoint {
        url: url.to_owned(),
        ca_file: ca_file.clone(),
        token_file: token_file.clone(),
        user: user.clone().zip(password_file.clone()),
        identity: client_certificate.clone().zip(client_key.clone()),
    };
    let remote = Remote::new(&endpoint);
    remote
        .map(Some)
        .map_err(|error| ConfigError::Usage(error.to_string()))
}

/// The URL of an agent; `None` if this is the path of a recording.
pub(crate) fn url(from: &Path) -> Option<&str> {
    from.to_str().filter(|from| from.contains("://"))
}

/// `top` does not show an agent's past.
fn refuse_time(at: Option<Moment>) -> Result<(), ConfigError> {
    if at.is_none() {
        return Ok(());
    }
    let text = "--at needs a recording in a directory; virtlens snapshot --from URL --at TIME \
                shows an agent's past";
    Err(ConfigError::Usage(text.to_owned()))
}

/// `snapshot`: the present or a past reading, or the usage between two.
pub(crate) fn show(agent: &Remote, args: &SnapshotArgs) -> anyhow::Result<ExitCode> {
    let interval = args.interval.map(|span| span.0);
    let Some(at) = args.at else {
        return print(&usage(agent, interval, args.output)?);
    };
    let at = at.instant(Timestamp::now());
    let now = reading_at(agent, at)?;
    let before = interval.map(|interval| reading_at(agent, at.saturating_sub(interval)?));
    let before = before.transpose()?;
    if let Some(before) = &before {
        anyhow::ensure!(
            before.clock_ns < now.clock_ns,
            "the agent was restarted in the interval, or its readings are further apart"
        );
    }
    let text = snapshot::of(&now, before.as_ref(), args.output, table_style())?;
    print(&match args.output {
        Output::Table => format!("reading of {}\n{text}", printable(&now.time)),
        Output::Json => text,
    })
}

/// The last recorded reading of an agent at a time or before.
fn reading_at(agent: &Remote, at: Timestamp) -> anyhow::Result<Snapshot> {
    // The first one suffices with the default interval of recordings.
    for window in [Duration::from_secs(30), PAST_WINDOW] {
        let (since, until) = (at.saturating_sub(window)?.to_string(), at.to_string());
        let mut last = None;
        let lost = agent.history(None, &since, &until, |snapshot| last = Some(snapshot))?;
        for error in lost {
            tracing::warn!(%error, "a part of the recording is unreadable");
        }
        if let Some(last) = last {
            return Ok(last);
        }
    }
    let minutes = PAST_WINDOW.as_secs() / 60;
    anyhow::bail!("no reading at {at}, or in the {minutes} min before")
}

fn usage(agent: &Remote, interval: Option<Duration>, output: Output) -> anyhow::Result<String> {
    let first = agent.snapshot(None)?;
    let Some(interval) = interval else {
        return snapshot::of(&first, None, output, table_style());
    };
    sleep(interval);
    let now = agent.snapshot(None)?;
    anyhow::ensure!(
        first.clock_ns < now.clock_ns,
        "the agent was restarted, or its readings are further apart than --interval"
    );
    snapshot::of(&now, Some(&first), output, table_style())
}

/// `topology`: the present or a past placement, as the agent judged it.
pub(crate) fn show_topology(agent: &Remote, args: &TopologyArgs) -> anyhow::Result<ExitCode> {
    let snapshot = match args.at {
        Some(at) => reading_at(agent, at.instant(Timestamp::now()))?,
        None => agent.snapshot(None)?,
    };
    print(&drawn(&snapshot, args)?)
}

/// `top`: the agent's readings; without a terminal the usage between two.
pub(crate) fn watch(agent: Remote, args: &TopArgs) -> anyhow::Result<ExitCode> {
    refuse_time(args.at)?;
    let interval = interval_of(args.interval)?;
    if !top::has_terminal() {
        pick::pick(&agent.snapshot(None)?.vms, args.vm.as_deref())?;
        return print(&usage(&agent, Some(interval), Output::Table)?);
    }
    let theme = Theme {
        color: table_style().color,
        ascii: args.ascii,
    };
    top::run_remote(agent, args.vm.as_deref(), interval, theme)?;
    Ok(ExitCode::SUCCESS)
}

/// The recorded time that `doctor` judges, as in RFC 3339: by default the last part of what
/// agents recorded.
pub(super) fn recorded_time(
    since: Option<Moment>,
    until: Option<Moment>,
) -> anyhow::Result<(String, String)> {
    let now = Timestamp::now();
    let until = until.map_or(now, |until| until.instant(now));
    let before = until.saturating_sub(PAST_WINDOW)?;
    let since = since.map_or(before, |since| since.instant(now));
    Ok((since.to_string(), until.to_string()))
}

/// `doctor`: the agent's findings of the next time, or of a recorded one.
pub(crate) fn diagnose(
    agent: &Remote,
    args: &DoctorArgs,
    config: &Config,
) -> anyhow::Result<ExitCode> {
    let vm = args.vm.as_deref();
    if let Some(against) = args.against {
        let wanted = Wanted {
            vm,
            output: args.output,
        };
        return diagnose_remote(agent, (args.since, args.until), against, &wanted);
    }
    let mut judged = Judged::default();
    if args.since.is_some() || args.until.is_some() {
        let (since, until) = recorded_time(args.since, args.until)?;
        let lost = agent.history(vm, &since, &until, |snapshot| {
            let unix_ns = unix_ns_of(&snapshot);
            judged.add(snapshot, unix_ns);
        })?;
        for error in lost {
            tracing::warn!(%error, "a part of the recording is unreadable");
        }
        let reported = judged.report(args, config)?;
        return reported.with_context(|| format!("no reading between {since} and {until}"));
    }
    let (begun, window) = (Instant::now(), window_of(args.window)?);
    loop {
        let snapshot = agent.snapshot(vm)?;
        let unix_ns = unix_ns_of(&snapshot);
        judged.add(snapshot, unix_ns);
        let left = window.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        sleep(left.min(JUDGED_EVERY));
    }
    judged.report(args, config)?.context("no reading")
}

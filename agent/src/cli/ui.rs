//! `virtlens ui`: the page for browsers on a local port, of this host or of a recording.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use virtlens_export::Selection;
use virtlens_model::snapshot::Snapshot;
use virtlens_record::Recording;

use crate::cli::args::UiArgs;
use crate::cli::past::{open, reading_at};
use crate::cli::run::runtime;
use crate::cli::stdout::print;
use crate::cli::stop::Stop;
use crate::collect::Collector;
use crate::collect::readings::Readings;
use crate::collect::traces::Traces;
use crate::config::Config;
use crate::http::{Authorizers, OneTime, Web, serve};
use crate::process;

/// A recording may grow, if its agent runs on this host: its last reading is read again after
/// this time.
const REREAD: Duration = Duration::from_secs(5);

/// Shows the page of an agent, which asks for the credentials that the agent requires.
pub(crate) fn agent(url: &str, args: &UiArgs) -> anyhow::Result<ExitCode> {
    let url = format!("{}/", url.trim_end_matches('/'));
    if !args.no_open {
        open_browser(&url);
    }
    print(&format!("{url}\n"))
}

/// Shows a recording.
pub(crate) fn recording(
    config: &Config,
    traces: Traces,
    path: &Path,
    args: &UiArgs,
) -> anyhow::Result<ExitCode> {
    let first = Arc::new(reading_at(&open(path)?, u64::MAX)?.snapshot);
    let read = last_reading(path.to_owned(), first);
    let readings = Readings::start(read, REREAD, config.metrics.clone(), None)
        .context("cannot start the thread of the recording")?
        .with_recording(path);
    show(readings, traces, "&recording", args)
}

/// Shows this host.
pub(crate) fn host(
    config: &Config,
    traces: Traces,
    mut collector: Collector,
    args: &UiArgs,
) -> anyhow::Result<ExitCode> {
    // The baseline of the counters.
    drop(collector.collect());
    let selection: Selection = config.metrics.clone();
    let collect = move || collector.collect();
    let readings = Readings::start(collect, config.min_age, selection, None)
        .context("cannot start the collector's thread")?;
    show(readings, traces, "", args)
}

/// Returns the last reading at each call; the one before, if the recording is unreadable now.
fn last_reading(path: PathBuf, mut last: Arc<Snapshot>) -> impl FnMut() -> Arc<Snapshot> {
    move || {
        let opened = Recording::open(&path).map(|(recording, _)| recording);
        let found = opened.ok().and_then(|one| one.at(u64::MAX).ok().flatten());
        if let Some(found) = found {
            last = Arc::new(found.snapshot);
        }
        Arc::clone(&last)
    }
}

/// Serves the page until SIGTERM or SIGINT.
fn show(readings: Readings, traces: Traces, mode: &str, args: &UiArgs) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let stop = Stop::prepare()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr().context("cannot listen")?;
        let one_time = OneTime::new(mode.is_empty()).context("cannot make a token")?;
        let one_time = Arc::new(one_time);
        let code = one_time.code().unwrap_or_default();
        let url = url(address, &code, mode);
        print(&format!("{url}\n"))?;
        if !args.no_open {
            open_browser(&url);
        }
        let authorizers = Authorizers {
            one_time: Some(one_time),
            ..Authorizers::default()
        };
        let stop = stop.while_serving();
        serve(
            listener,
            Web::default(),
            authorizers,
            readings,
            traces,
            stop,
        )
        .await;
        Ok(ExitCode::SUCCESS)
    })
}

/// The code is in the fragment, which browsers do not send.
fn url(address: SocketAddr, code: &str, mode: &str) -> String {
    format!("http://{address}/#/login?code={code}{mode}")
}

/// Opens the address, if the host has a desktop. A browser is not started as root.
pub(super) fn open_browser(url: &str) {
    if process::is_root() {
        return;
    }
    let mut command = Command::new("xdg-open");
    let command = command.arg(url).stdin(Stdio::null());
    let opened = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = opened {
        tracing::debug!(%error, "cannot open a browser");
    }
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn address_has_code_in_its_fragment() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let url = url(address, "abc", "&recording");
        assert_eq!(url, "http://127.0.0.1:1/#/login?code=abc&recording");
    }
}

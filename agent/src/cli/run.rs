//! `virtlens run`: the agent.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Runtime;
use virtlens_host::HostRoot;
use virtlens_model::snapshot::Snapshot;
use virtlens_record::Limits;

use crate::cli::stdout::{print_while_read, table_style};
use crate::cli::stop::Stop;
use crate::collect::alerts::Alerts;
use crate::collect::readings::{Readings, Unavailable};
use crate::collect::recorder::Order;
use crate::collect::traces::{TraceLock, Traces};
use crate::collect::{Collector, Options, incidents};
use crate::config::{Config, ConfigError, WebAuth};
use crate::http::listen::listen;
use crate::http::{Authorizers, Web, serve};
use crate::views::shortfall::{Shortfall, shortfalls};
use crate::views::table::render;
use crate::{kube, process};

/// Interval at which the table is drawn.
const TABLE_INTERVAL: Duration = Duration::from_secs(2);

/// How long there must have been no VM before hooks are detached, so that a node whose VMs
/// come and go does not attach and detach them all the time.
const DETACH_AFTER: Duration = Duration::from_mins(10);

/// The host is not read more often than this for a recording.
const SHORTEST_RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT. With `table` it also draws a table on stdout, and ends
/// when nobody reads it any more.
///
/// # Errors
///
/// If it cannot listen on the address or cannot read the host.
pub fn run(config: &Config, table: bool) -> anyhow::Result<()> {
    if config.record.is_some() && config.record_interval < SHORTEST_RECORD_INTERVAL {
        let text = "--record-interval: expected 1s or more (see virtlens run --help)";
        return Err(ConfigError::Usage(text.to_owned()).into());
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        // Before anything that takes time, so that no signal is lost, and a port in use
        // is detected before BPF is loaded.
        let stop = Stop::prepare()?;
        let web = Web::open(config.web_config.as_deref())?;
        let scheme = if web.is_tls() { "https" } else { "http" };
        if config.web_auth == WebAuth::Kubernetes && !web.is_tls() {
            tracing::warn!(
                "--web-auth kubernetes without TLS: clients send bearer tokens unencrypted; set a \
                 certificate with --web-config"
            );
        }
        let hint = || {
            let address = config.listen;
            format!("cannot listen on {address}; choose another address with --listen")
        };
        let listener = listen(config.listen).await.with_context(hint)?;
        let address = listener.local_addr().context("cannot listen")?;
        let mut collector = Collector::open(&Options {
            pin: !config.no_pin,
            detach_after: Some(DETACH_AFTER),
            ..Options::named(config)?
        })?;
        // The first reading, which is the baseline of the counters.
        let first = collector.collect();
        let stop = stop.while_serving();
        log_start(&first, address);
        let lock = TraceLock::default();
        let record = recording(config, &first.node.name, &lock);
        drop(first);
        let collect = move || collector.collect();
        let readings = Readings::start(collect, config.min_age, config.metrics.clone(), record)
            .context("cannot start the collector's thread")?;
        let traces = traces(config, lock);
        let mut drawn = Ok(());
        let reviewer = kube::reviewer(config).context("cannot start the reviewer's thread")?;
        let authorizers = Authorizers {
            reviewer,
            trace_users: config.web_trace_users.0.clone(),
            one_time: None,
        };
        if table {
            let drawing = draw(readings.clone(), scheme, address);
            let stop = async {
                tokio::select! {
                    () = stop => {}
                    result = drawing => drawn = result,
                }
            };
            serve(listener, web, authorizers, readings, traces, stop).await;
        } else {
            serve(listener, web, authorizers, readings, traces, stop).await;
        }
        drawn?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// The runtime of a server, with one thread.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start")
}

/// The traces that clients may request.
pub(super) fn traces(config: &Config, lock: TraceLock) -> Traces {
    let folder = config.record.clone();
    Traces {
        root: HostRoot::new(&config.root),
        loader: config.loader,
        folder: folder.unwrap_or_else(std::env::temp_dir),
        lock,
    }
}

/// The recording that is configured.
fn recording(config: &Config, node: &str, lock: &TraceLock) -> Option<Order> {
    let folder = config.record.clone()?;
    let root = HostRoot::new(&config.root);
    Some(Order {
        folder,
        interval: config.record_interval,
        limits: Limits {
            max_bytes: config.record_max_mib.saturating_mul(1 << 20),
            max_age: config.record_max_age,
        },
        node: node.to_owned(),
        boot_id: virtlens_host::boot_id(&root),
        incidents: (config.incidents_max_mib > 0).then_some(incidents::Order {
            max_mib: config.incidents_max_mib,
            root,
            loader: config.loader,
            lock: lock.clone(),
            alerts: Alerts::default(),
        }),
    })
}

fn log_start(snapshot: &Snapshot, address: SocketAddr) {
    let sources: Vec<_> = snapshot
        .sources
        .iter()
        .map(|source| format!("{}:{}", source.name, source.mode))
        .collect();
    tracing::info!(
        version = process::VERSION,
        kernel = snapshot.node.kernel,
        node = snapshot.node.name,
        cgroup = snapshot.node.cgroup,
        sources = sources.join(","),
        vms = snapshot.vms.len(),
        listen = address.to_string(),
        "started"
    );
    for Shortfall {
        up,
        sources,
        reason,
    } in shortfalls(snapshot)
    {
        let sources = sources.join(",");
        if up {
            tracing::warn!(sources, reason, "limited");
        } else {
            tracing::warn!(sources, reason, "off");
        }
    }
    if !process::is_root() {
        tracing::warn!(
            "not running as root: VMs of other users are not visible; run as root to see all VMs"
        );
    }
}

/// Draws the table repeatedly, in place on a terminal, until nobody reads it.
async fn draw(readings: Readings, scheme: &str, address: SocketAddr) -> anyhow::Result<()> {
    let in_place = std::io::stdout().is_terminal();
    let mut before: Option<Arc<Snapshot>> = None;
    let mut first = scroll_away();
    loop {
        let now = match readings.snapshot().await {
            Ok(now) => Some(now),
            // Scrapers have priority; the next frame tries again.
            Err(Unavailable::Busy) => None,
            Err(gone @ Unavailable::Stopping) => return Err(gone.into()),
        };
        if let (Some(before), Some(now)) = (&before, &now) {
            let table = render(now, Some(before), table_style());
            let frame = if in_place {
                std::mem::take(&mut first) + &repaint(&table, &url_line(scheme, address))
            } else {
                format!("{table}\n")
            };
            if !print_while_read(&frame)? {
                tracing::info!("stdout closed, stopping");
                return Ok(());
            }
        }
        before = now.or(before);
        tokio::time::sleep(TABLE_INTERVAL).await;
    }
}

/// Scrolls the present content of the terminal, including the first lines of the log,
/// into the scrollback, so that it is neither overwritten nor lost.
fn scroll_away() -> String {
    let rows = terminal_size::terminal_size_of(std::io::stdout()).map_or(0, |(_, rows)| rows.0);
    "\n".repeat(rows.into())
}

/// The line below a table on a terminal: the URL of the metrics, and the key that ends
/// the program.
fn url_line(scheme: &str, address: SocketAddr) -> String {
    // A browser on this host cannot connect to the unspecified address.
    let host = match address {
        any if any.ip().is_unspecified() => format!("localhost:{}", any.port()),
        one => one.to_string(),
    };
    format!("metrics: {scheme}://{host}/metrics   Ctrl-C to stop")
}

/// Replaces the previous frame in one write. It clears the lines from the second on, then
/// the first: tmux treats clearing from the first line on as `clear`, and adds each frame
/// to the scrollback. Clearing after each line removes the last character of a full line
/// on some terminals.
fn repaint(table: &str, last_line: &str) -> String {
    format!("\x1b[2H\x1b[J\x1b[H\x1b[K{table}\n{last_line}\n")
}

#[cfg(test)]
mod tests {
    use super::url_line;

    #[test]
    fn url_line_of_any_listen_address_can_be_opened() {
        for (listen, url) in [
            ("0.0.0.0:9877", "http://localhost:9877/metrics"),
            ("[::]:9877", "http://localhost:9877/metrics"),
            ("127.0.0.1:1", "http://127.0.0.1:1/metrics"),
            ("[::1]:1", "http://[::1]:1/metrics"),
        ] {
            let line = url_line("http", listen.parse().expect("an address"));
            assert!(line.contains(&format!(" {url} ")), "{line}");
        }
    }
}

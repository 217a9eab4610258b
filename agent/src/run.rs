//! `virtlens run`: the agent.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use virtlens_model::snapshot::Snapshot;

use crate::cli::{print, table_style};
use crate::collect::{Collector, Options};
use crate::config::Config;
use crate::process;
use crate::readings::Readings;
use crate::serve::serve;
use crate::shortfall::{Shortfall, shortfalls};
use crate::table::{Since, render};

/// How often the table is drawn.
const TABLE_INTERVAL: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT; with `table` also draws a table on stdout.
///
/// # Errors
///
/// When the address cannot be listened on or the host cannot be read.
pub fn run(config: &Config, table: bool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        // Before anything that takes time, so that no signal is missed, and
        // a port that is taken is known before BPF is loaded.
        let stop = stop_signal()?;
        let listener = listen(config).await?;
        let mut collector = Collector::open(&Options {
            root: config.root.clone(),
            linger: config.linger,
            node_name: config.node_name.clone(),
        })?;
        // The first reading, from which counts go on.
        log_start(&collector.collect(), &listener);
        let readings = Readings::start(move || collector.collect(), config.min_age)
            .context("cannot start the collector's thread")?;
        let serving = serve(listener, readings.clone(), stop);
        if table {
            tokio::select! {
                () = serving => {}
                result = draw(readings) => result?,
            }
        } else {
            drop(readings);
            serving.await;
        }
        tracing::info!("stopped");
        Ok(())
    })
}

async fn listen(config: &Config) -> anyhow::Result<TcpListener> {
    TcpListener::bind(config.listen).await.with_context(|| {
        format!(
            "cannot listen on {}; choose another address with --listen",
            config.listen
        )
    })
}

/// Ends with the first SIGTERM or SIGINT.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn log_start(snapshot: &Snapshot, listener: &TcpListener) {
    let listen = listener
        .local_addr()
        .map_or_else(|error| error.to_string(), |addr| addr.to_string());
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
        listen,
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
            "not root: only what this user may read is seen; run as root to see all VMs"
        );
    }
}

/// Draws the table again and again, in place on a terminal.
async fn draw(readings: Readings) -> anyhow::Result<()> {
    let in_place = std::io::stdout().is_terminal();
    let mut before = (readings.snapshot().await?, Instant::now());
    loop {
        tokio::time::sleep(TABLE_INTERVAL).await;
        let now = (readings.snapshot().await?, Instant::now());
        let since = Since {
            before: &before.0,
            elapsed: now.1 - before.1,
        };
        let table = render(&now.0, Some(since), table_style());
        let frame = if in_place {
            repaint(&table)
        } else {
            format!("{table}\n")
        };
        print(&frame)?;
        before = now;
    }
}

/// Home, each line with what was right of it wiped, and all below wiped: no
/// flicker, as the screen is never blank.
fn repaint(table: &str) -> String {
    format!("\x1b[H{}\x1b[J", table.replace('\n', "\x1b[K\n"))
}

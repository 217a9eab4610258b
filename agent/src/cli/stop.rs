//! How signals end the agent.
//!
//! ```text
//! loading ─ any ────► ends at once: nothing is served yet, and what is pinned is whole
//! serving ─ first ──► requests may finish
//!         ─ second ─► ends at once
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of an agent that was stopped by a signal.
const ENDED: i32 = 0;

/// Handles SIGTERM and SIGINT. Until the agent serves, they end the program at once.
pub(crate) struct Stop {
    at_once: Arc<AtomicBool>,
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Installs the handlers. Call it before anything that takes time: without a handler
    /// the first process of a container gets no signal at all.
    ///
    /// # Errors
    ///
    /// If the kernel denies it.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let at_once = Arc::new(AtomicBool::new(true));
        for number in [SIGTERM, SIGINT] {
            // In this order, so that the first signal while serving only sets the flag.
            flag::register_conditional_shutdown(number, ENDED, Arc::clone(&at_once))
                .and_then(|_| flag::register(number, Arc::clone(&at_once)))
                .context("cannot handle signals")?;
        }
        Ok(Self {
            at_once,
            terminate: signal(SignalKind::terminate()).context("cannot handle SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot handle SIGINT")?,
        })
    }

    /// Switches to serving. The returned future completes with the first signal; the
    /// second signal ends the program.
    pub(crate) fn while_serving(mut self) -> impl Future<Output = ()> {
        self.at_once.store(false, Ordering::SeqCst);
        async move {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        }
    }
}

//! Traces the selected VM in a separate `virtlens trace` process, so that the view stays
//! live.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::rows::Row;
use crate::collect::Collector;

/// Duration of a trace.
const LENGTH: &str = "10s";

/// A running trace.
pub(super) struct Tracing {
    child: Child,
    file: String,
    vm: String,
}

impl Tracing {
    /// Starts a trace into a new file in the working directory.
    pub(super) fn start(vm: &Row, time: &str, collector: &Collector) -> anyhow::Result<Self> {
        let name = vm.name.clone();
        let file = format!("./{}-{time}.pftrace", name.replace(['/', ' '], "-"));
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let child = Command::new(program)
            .arg("--root")
            .arg(collector.root().path())
            .args(["trace", &vm.pid.to_string(), "--for", LENGTH])
            .args(["--output", &file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the trace")?;
        let vm = name;
        Ok(Self { child, file, vm })
    }

    /// Message while the trace runs.
    pub(super) fn text(&self) -> String {
        format!("tracing {} for {LENGTH} into {}", self.vm, self.file)
    }

    /// Message after the end of the trace.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        if status.success() {
            return Some(format!("traced {}: {}", self.vm, self.file));
        }
        let mut output = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // If the output cannot be read, the exit status suffices.
            let _ = stderr.read_to_string(&mut output);
        }
        let last = output.lines().last().unwrap_or_default();
        Some(format!("trace failed ({status}): {last}"))
    }
}

impl Drop for Tracing {
    /// Ends the trace; its file stays valid.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

//! Traces the selected VM while the view stays live: on this host in a separate `virtlens trace`
//! process, on another node by its agent.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use virtlens_kube::{Remote, TraceRequest};

use super::rows::Row;
use crate::collect::Collector;
use crate::views::trace::save;

/// Duration of a trace.
const LENGTH: Duration = Duration::from_secs(10);

/// Largest trace of another node, MiB.
const MAX_MIB: u64 = 16;

/// A running trace.
pub(super) struct Tracing {
    by: By,
    file: String,
    vm: String,
}

/// The program that takes a trace.
enum By {
    /// A process on this host.
    Process(Child),
    /// An agent: the result arrives from the thread that waits for it, which ends with this
    /// program at the latest.
    Agent(Receiver<anyhow::Result<()>>),
}

impl Tracing {
    /// Starts a trace on this host into a new file in the working directory.
    pub(super) fn here(vm: &Row, time: &str, collector: &Collector) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let file = file_of(vm, time);
        let child = Command::new(program)
            .arg("--root")
            .arg(collector.root().path())
            .args(["trace", &vm.pid.to_string(), "--for", &length()])
            .args(["--output", &file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the trace")?;
        let (by, vm) = (By::Process(child), vm.name.clone());
        Ok(Self { by, file, vm })
    }

    /// Starts a trace on another node into a new file in the working directory.
    pub(super) fn there(vm: &Row, time: &str, agent: &Remote) -> anyhow::Result<Self> {
        let (file, agent) = (file_of(vm, time), agent.clone());
        let request = TraceRequest {
            vm: vm.vm.to_string(),
            length: LENGTH,
            max_mib: MAX_MIB,
        };
        let (ended, end) = sync_channel(1);
        let (output, name) = (file.clone(), vm.name.clone());
        thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                let taken = agent.trace(&request).map_err(anyhow::Error::from);
                let saved = taken.and_then(|trace| save(Some(Path::new(&output)), &name, trace));
                // The view may have ended.
                drop(ended.send(saved.map(drop)));
            })
            .context("cannot start a thread")?;
        let (by, vm) = (By::Agent(end), vm.name.clone());
        Ok(Self { by, file, vm })
    }

    /// Message while the trace runs.
    pub(super) fn text(&self) -> String {
        format!("tracing {} for {} into {}", self.vm, length(), self.file)
    }

    /// Message after the end of the trace.
    pub(super) fn ended(&mut self) -> Option<String> {
        let ended = match &mut self.by {
            By::Process(child) => end_of(child)?,
            By::Agent(end) => match end.try_recv() {
                Ok(ended) => ended.map_err(|error| format!("trace failed: {error:#}")),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Err("trace failed".to_owned()),
            },
        };
        Some(match ended {
            Ok(()) => format!("traced {}: {}", self.vm, self.file),
            Err(failure) => failure,
        })
    }
}

fn file_of(vm: &Row, time: &str) -> String {
    format!("./{}-{time}.pftrace", vm.name.replace(['/', ' '], "-"))
}

fn length() -> String {
    format!("{}s", LENGTH.as_secs())
}

/// The result of a process, with the reason for a failure; `None` while it runs.
fn end_of(child: &mut Child) -> Option<Result<(), String>> {
    let status = child.try_wait().ok()??;
    if status.success() {
        return Some(Ok(()));
    }
    let mut output = String::new();
    if let Some(stderr) = &mut child.stderr {
        // If the output cannot be read, the exit status suffices.
        let _ = stderr.read_to_string(&mut output);
    }
    let last = output.lines().last().unwrap_or_default();
    Some(Err(format!("trace failed ({status}): {last}")))
}

impl Drop for Tracing {
    /// Ends the trace; its file stays valid.
    fn drop(&mut self) {
        let By::Process(child) = &mut self.by else {
            return;
        };
        if let Ok(None) = child.try_wait() {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

//! Traces a VM in a separate `virtlens trace` process, for which nothing waits.

use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use virtlens_host::HostRoot;
use virtlens_probe::loader::Loader;

use crate::process;

/// The process is killed this long after the length of the trace: the start of the process, and
/// loading its programs on a busy node.
pub const MOST_BESIDE: Duration = Duration::from_secs(20);

/// The lowest priority (setpriority(2)).
const NICE: i32 = 19;

/// Held while a trace is taken: one at a time on the node. Clones are the same lock.
#[derive(Debug, Clone, Default)]
pub struct TraceLock(Arc<AtomicBool>);

impl TraceLock {
    /// Takes the lock until the result is dropped; `None` if it is taken.
    pub(super) fn try_lock(&self) -> Option<TraceGuard> {
        let was_taken = self.0.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| TraceGuard(Arc::clone(&self.0)))
    }
}

/// The taken lock.
pub(super) struct TraceGuard(Arc<AtomicBool>);

impl Drop for TraceGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A trace to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Process id of the VMM.
    pub pid: u32,
    /// Duration of the trace.
    pub length: Duration,
    /// Most bytes of the trace, MiB.
    pub max_mib: u64,
}

/// The file for a trace.
pub(super) enum Goal {
    /// An existing file with a name.
    Named(PathBuf),
    /// An open file, and one for the errors of the process.
    Open {
        /// For the trace.
        file: File,
        /// For errors.
        errors: File,
    },
}

/// A running trace.
pub(super) struct Tracing {
    child: Child,
    /// The errors of the process, if they are in a file.
    errors: Option<File>,
    began: Instant,
    most: Duration,
    _lock: TraceGuard,
}

/// The end of a trace.
pub(super) enum Outcome {
    /// The file is complete.
    Taken,
    /// The trace is missing, for this reason.
    Failed(String),
}

impl Tracing {
    /// Starts a trace, which holds the lock until the process has ended.
    pub(super) fn start(
        lock: TraceGuard,
        request: &Request,
        goal: Goal,
        root: &HostRoot,
        loader: Loader,
    ) -> io::Result<Self> {
        let mut command = Command::new(process::EXECUTABLE);
        command.arg0("virtlens");
        // The settings of this agent, such as its source of pod names, are not those of the
        // trace.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("VIRTLENS_") || name_text == "NODE_NAME" {
                command.env_remove(&name);
            }
        }
        let Request {
            pid,
            length,
            max_mib,
        } = request;
        command.arg("--root").arg(root.path());
        command.args(["--loader", loader.name(), "--metadata", "none"]);
        command.args(["--log-level", "error", "trace", &pid.to_string()]);
        command.args(["--for", &format!("{}ms", length.as_millis())]);
        command.args(["--max-size", &max_mib.to_string()]);
        command.stdin(Stdio::null());
        let errors = match goal {
            Goal::Named(path) => {
                command.arg("--output").arg(path).stdout(Stdio::null());
                command.stderr(Stdio::piped());
                None
            }
            Goal::Open { file, errors } => {
                // The summary goes to stderr then.
                command.arg("--output").arg(Path::new("-")).stdout(file);
                command.stderr(errors.try_clone()?);
                Some(errors)
            }
        };
        let child = command.spawn()?;
        // The trace is complete at any priority, so a refusal changes nothing.
        setpriority_process(Some(Pid::from_child(&child)), NICE).ok();
        Ok(Self {
            child,
            errors,
            began: Instant::now(),
            most: *length + MOST_BESIDE,
            _lock: lock,
        })
    }

    /// The end of the trace; `None` while it lasts.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        match self.child.try_wait() {
            Ok(None) if self.began.elapsed() < self.most => None,
            Ok(None) => {
                // It may take a while to end, for example in an interrupted system call.
                drop(self.child.kill());
                let seconds = self.most.as_secs();
                Some(Outcome::Failed(format!(
                    "it did not end within {seconds} s"
                )))
            }
            Ok(Some(status)) if status.success() => Some(Outcome::Taken),
            Ok(Some(status)) => {
                let reason = self.last_line();
                Some(Outcome::Failed(format!("it failed ({status}): {reason}")))
            }
            Err(error) => Some(Outcome::Failed(error.to_string())),
        }
    }

    /// Whether the process has ended and is reaped.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process if it still runs, and waits until it has ended.
    pub(super) fn kill(&mut self) {
        if !self.has_ended() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }

    /// The last line that the process wrote, which has ended.
    fn last_line(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut read = |from: &mut dyn Read| {
            // It has less, and what cannot be read is not needed.
            drop(from.take(64 << 10).read_to_end(&mut bytes));
        };
        if let Some(file) = &mut self.errors {
            // The process had the same position in the file.
            drop(file.rewind());
            read(file);
        } else if let Some(stderr) = &mut self.child.stderr {
            read(stderr);
        }
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().last().unwrap_or_default();
        last.trim_start_matches("virtlens: ").to_owned()
    }
}

impl Drop for Tracing {
    /// Kills the process if it still runs. The agent ends, too, so another process reaps it.
    fn drop(&mut self) {
        if !self.has_ended() {
            drop(self.child.kill());
        }
    }
}

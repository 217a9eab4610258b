//! Traces a VM in a separate `virtlens trace` process, for which nothing waits.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use virtlens_host::HostRoot;
use virtlens_probe::loader::Loader;

use crate::process;

/// Duration of a trace.
const LENGTH: &str = "5s";

/// The process is killed after this time: the trace, the start of the process and loading its
/// programs on a busy node.
const MOST: Duration = Duration::from_secs(25);

/// The lowest priority (setpriority(2)).
const NICE: i32 = 19;

/// A running trace.
pub(super) struct Tracing {
    child: Child,
    began: Instant,
}

/// The end of a trace.
pub(super) enum Outcome {
    /// The file is complete.
    Taken,
    /// The trace is missing, for this reason.
    Failed(String),
}

impl Tracing {
    /// Starts a trace of the VM of process `pid` into an existing file.
    pub(super) fn start(
        pid: u32,
        file: &Path,
        max_mib: u64,
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
        command.arg("--root").arg(root.path());
        command.args(["--loader", loader.name(), "--metadata", "none"]);
        command.args(["--log-level", "error", "trace", &pid.to_string()]);
        command.args(["--for", LENGTH, "--max-size", &max_mib.to_string()]);
        command.arg("--output").arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn()?;
        // The trace is complete at any priority, so a refusal changes nothing.
        setpriority_process(Some(Pid::from_child(&child)), NICE).ok();
        let began = Instant::now();
        Ok(Self { child, began })
    }

    /// The end of the trace; `None` while it lasts.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        match self.child.try_wait() {
            Ok(None) if self.began.elapsed() < MOST => None,
            Ok(None) => {
                // It may take a while to end, for example in an interrupted system call.
                drop(self.child.kill());
                let seconds = MOST.as_secs();
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

    /// The last line that the process wrote, which has ended.
    fn last_line(&mut self) -> String {
        let mut bytes = Vec::new();
        if let Some(stderr) = &mut self.child.stderr {
            // The pipe has less, and what cannot be read is not needed.
            drop(stderr.take(64 << 10).read_to_end(&mut bytes));
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

//! Traces that clients of the agent request.
//!
//! The traces have no names: a name would outlast an agent that is killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use virtlens_host::HostRoot;
use virtlens_probe::loader::Loader;

use crate::collect::shortage::shortage;
use crate::collect::tracing_child::{Goal, Outcome, Tracing};
pub use crate::collect::tracing_child::{MOST_BESIDE, Request, TraceLock};

/// Interval at which it is checked whether the trace has ended.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Takes traces, one at a time on the node.
#[derive(Debug, Clone)]
pub struct Traces {
    /// Root of the host's /proc and /sys.
    pub root: HostRoot,
    /// Loader of the trace's programs.
    pub loader: Loader,
    /// Directory with room for a trace.
    pub folder: PathBuf,
    /// Shared with the incidents of this agent.
    pub lock: TraceLock,
}

/// Reason for a missing trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTrace {
    /// Another trace is being taken.
    #[error("another trace is being taken on this node")]
    Busy,
    /// The node is short of memory.
    #[error("refused to trace: {0}")]
    Short(String),
    /// Nobody waits for the trace any more.
    #[error("the client has disconnected")]
    Unwanted,
    /// The trace failed.
    #[error("cannot trace the VM: {0}")]
    Failed(String),
}

impl Traces {
    /// Traces a VM. Blocks for the length of the trace, and some seconds more at most; ends at
    /// once when the sender of `wanted` is dropped.
    ///
    /// # Errors
    ///
    /// See [`NoTrace`]. Nothing is left then.
    pub fn take(&self, request: &Request, wanted: &Receiver<()>) -> Result<File, NoTrace> {
        let lock = self.lock.try_lock().ok_or(NoTrace::Busy)?;
        if let Some(reason) = shortage(&self.root) {
            return Err(NoTrace::Short(reason));
        }
        let failed = |error: io::Error| NoTrace::Failed(error.to_string());
        let (file, errors) = unnamed(&self.folder)
            .and_then(|file| Ok((file, unnamed(&self.folder)?)))
            .map_err(|error| {
                let folder = self.folder.display();
                NoTrace::Failed(format!(
                    "cannot create a file in {folder}: {error}; start the agent with --record DIR, \
                     or set TMPDIR to a writable directory"
                ))
            })?;
        let goal = Goal::Open {
            file: file.try_clone().map_err(failed)?,
            errors,
        };
        let mut tracing =
            Tracing::start(lock, request, goal, &self.root, self.loader).map_err(failed)?;
        let outcome = loop {
            if let Some(outcome) = tracing.poll() {
                break outcome;
            }
            if wanted.recv_timeout(POLL_EVERY) == Err(RecvTimeoutError::Disconnected) {
                tracing.kill();
                return Err(NoTrace::Unwanted);
            }
        };
        match outcome {
            Outcome::Taken => Ok(file),
            Outcome::Failed(reason) => {
                tracing.kill();
                Err(NoTrace::Failed(reason))
            }
        }
    }
}

/// A new file without a name in a directory, which is created if it is missing: the recorder
/// creates it with the first reading, which may be later.
fn unnamed(folder: &Path) -> io::Result<File> {
    virtlens_record::create_folder(folder)?;
    let path = folder.join(format!("virtlens-trace-{}.part", std::process::id()));
    let create = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(&path)
    };
    let file = match create() {
        // Of an agent that was killed before it removed the name.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(&path)?;
            create()?
        }
        created => created?,
    };
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::sync::mpsc::channel;

    use virtlens_probe::loader::Loader;

    use super::{Duration, HostRoot, NoTrace, Request, TraceLock, Traces, unnamed};

    #[test]
    fn unnamed_file_creates_a_missing_directory() {
        let folder = tempfile::tempdir().expect("there is room");
        let missing = folder.path().join("records");
        let mut file = unnamed(&missing).expect("the folder is ours");
        file.write_all(b"a trace").expect("there is room");
        assert_eq!(fs::read_dir(missing).expect("a folder").count(), 0);
    }

    #[test]
    fn unnamed_file_leaves_nothing_and_replaces_a_remainder() {
        let folder = tempfile::tempdir().expect("there is room");
        let name = format!("virtlens-trace-{}.part", std::process::id());
        fs::write(folder.path().join(name), "a remainder").expect("there is room");
        let mut file = unnamed(folder.path()).expect("the folder is ours");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        file.write_all(b"a trace").expect("there is room");
        file.rewind().expect("it is a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("text");
        assert_eq!(text, "a trace");
    }

    #[test]
    fn second_trace_and_trace_without_known_memory_are_refused() {
        let folder = tempfile::tempdir().expect("there is room");
        let traces = Traces {
            root: HostRoot::new(folder.path()),
            loader: Loader::default(),
            folder: folder.path().to_owned(),
            lock: TraceLock::default(),
        };
        let request = Request {
            pid: 1,
            length: Duration::from_millis(100),
            max_mib: 1,
        };
        let (_sender, wanted) = channel();
        let take = || {
            traces
                .take(&request, &wanted)
                .expect_err("nothing to trace")
        };
        assert!(matches!(take(), NoTrace::Short(_)), "{:?}", take());
        let held = traces.lock.try_lock().expect("it is free");
        assert!(traces.lock.try_lock().is_none());
        assert_eq!(take(), NoTrace::Busy);
        drop(held);
        assert!(traces.lock.try_lock().is_some());
    }
}

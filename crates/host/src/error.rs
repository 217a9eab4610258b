//! Read errors, and counts of omitted data.

use std::io;
use std::path::{Path, PathBuf};

/// Reason that a file of the host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process, thread or cgroup ended while it was read.
    #[error("{} vanished: its process, thread or cgroup has ended", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
        /// ENOENT, ESRCH or ENODEV.
        source: io::Error,
    },
    /// The kernel denied access.
    #[error(
        "cannot read {}: {source}; run as root in the host's pid namespace, with CAP_SYS_PTRACE \
         and CAP_DAC_READ_SEARCH",
        path.display()
    )]
    Denied {
        /// The file.
        path: PathBuf,
        /// EACCES or EPERM.
        source: io::Error,
    },
    /// Any other failure.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is longer than any known content.
    #[error("{}: longer than {limit} bytes, ignored", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit, bytes.
        limit: usize,
    },
    /// The content is not in a known form of the kernel.
    #[error("{}: expected {expected}, found {found:?}", path.display())]
    Unparsable {
        /// The file.
        path: PathBuf,
        /// The expected form.
        expected: &'static str,
        /// Start of the content.
        found: String,
    },
    /// No cgroup file system with the controller is mounted.
    #[error(
        "no cgroup file system with the {controller} controller found in {}; mount cgroup2 (or the \
         v1 controller) below /sys/fs/cgroup; in a container mount the host's",
        mountinfo.display()
    )]
    NotMounted {
        /// The mount table that was read.
        mountinfo: PathBuf,
        /// The controller.
        controller: &'static str,
    },
    /// The cgroup is outside the mounted hierarchy.
    #[error(
        "cgroup {cgroup} is outside the mount at {}; run in the host's cgroup namespace, or mount \
         the host's /sys/fs/cgroup",
        mount.display()
    )]
    OutsideMount {
        /// Mount point of the hierarchy.
        mount: PathBuf,
        /// The cgroup as the kernel named it.
        cgroup: String,
    },
}

impl Error {
    /// Converts an I/O error on `path`.
    ///
    /// A file of a dead process opens with ENOENT and reads with ESRCH; a file of a
    /// removed cgroup reads with ENODEV (`kernfs_get_active`).
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        const ESRCH: i32 = 3;
        const ENODEV: i32 = 19;
        let path = path.to_owned();
        match (source.kind(), source.raw_os_error()) {
            (io::ErrorKind::NotFound, _) | (_, Some(ESRCH | ENODEV)) => Self::Gone { path, source },
            (io::ErrorKind::PermissionDenied, _) => Self::Denied { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// [`Error::Unparsable`] with the start of the content.
    pub(crate) fn unparsable(path: &Path, expected: &'static str, found: &[u8]) -> Self {
        let start = found.get(..80).unwrap_or(found);
        Self::Unparsable {
            path: path.to_owned(),
            expected,
            found: String::from_utf8_lossy(start).into_owned(),
        }
    }

    /// Whether the process, thread or cgroup has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// Data that readings omitted, counted since the source was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Vanished while being read. Normal on a busy host.
    pub races: u64,
    /// Access denied by the kernel.
    pub denied: u64,
    /// Unparsable values, and failures of any other kind.
    pub unparsed: u64,
    /// Omitted because of a limit.
    pub over_limit: u64,
}

impl Losses {
    /// Counts one failure.
    pub fn count(&mut self, error: &Error) {
        match error {
            Error::Gone { .. } => self.races += 1,
            Error::Denied { .. } => self.denied += 1,
            Error::TooLong { .. } => self.over_limit += 1,
            Error::Io { .. }
            | Error::Unparsable { .. }
            | Error::NotMounted { .. }
            | Error::OutsideMount { .. } => self.unparsed += 1,
        }
    }

    /// Returns the value; on failure counts the error and returns `None`.
    pub fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.inspect_err(|error| self.count(error)).ok()
    }

    /// Adds the counts of another reader.
    pub fn add(&mut self, other: Self) {
        self.races += other.races;
        self.denied += other.denied;
        self.unparsed += other.unparsed;
        self.over_limit += other.over_limit;
    }
}

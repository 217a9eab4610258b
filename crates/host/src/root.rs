//! The root directory of the host, and bounded reads below it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Larger than any file about one process, thread or cgroup (the longest,
/// /proc/PID/status on 8192 CPUs, stays below 8 KiB).
pub(crate) const SMALL_FILE: usize = 64 << 10;

/// The directory below which everything is read: "/" in production, a temporary directory
/// in a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    /// The host below `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The root directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file below /proc.
    pub fn proc(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join("proc").join(below)
    }

    /// A file of process (or thread) `pid` below /proc.
    pub fn proc_of(&self, pid: u32, file: &str) -> PathBuf {
        self.proc(format!("{pid}/{file}"))
    }

    /// A file of one thread of a process below /proc.
    ///
    /// It differs from `proc_of(tid, …)`, where `stat` sums the times of the whole
    /// process (`do_task_stat(…, whole)`, fs/proc/array.c).
    pub fn thread_of(&self, tgid: u32, tid: u32, file: &str) -> PathBuf {
        self.proc(format!("{tgid}/task/{tid}/{file}"))
    }

    /// A file below /sys.
    pub fn sys(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join("sys").join(below)
    }

    /// Path of a mount point of /proc/self/mountinfo.
    ///
    /// The kernel names mount points as this process sees them: `/host/sys/fs/cgroup` if
    /// the host's tree is mounted at `/host`.
    pub(crate) fn mount_point(&self, point: &str) -> PathBuf {
        let point = Path::new(point);
        if point.starts_with(&self.0) {
            point.to_owned()
        } else {
            self.0.join(point.strip_prefix("/").unwrap_or(point))
        }
    }
}

/// Returns the first `limit` bytes of a file, and whether it is longer.
pub(crate) fn read_start(path: &Path, limit: usize) -> Result<(Vec<u8>, bool), Error> {
    let failed = |source| Error::io(path, source);
    let mut bytes = Vec::with_capacity(limit.min(512));
    File::open(path)
        .map_err(failed)?
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let more = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, more))
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Vec<u8>, Error> {
    match read_start(path, limit)? {
        (bytes, false) => Ok(bytes),
        (_, true) => Err(Error::TooLong {
            path: path.to_owned(),
            limit,
        }),
    }
}

/// Reads and parses a whole small file. The kernel ends all of these files with a
/// newline: without it the last number may be truncated.
pub(crate) fn read_as<T>(
    path: &Path,
    expected: &'static str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, Error> {
    let bytes = read(path, SMALL_FILE)?;
    let whole = Some(&bytes[..]).filter(|bytes| bytes.ends_with(b"\n"));
    let parsed = whole.and_then(parse);
    parsed.ok_or_else(|| Error::unparsable(path, expected, &bytes))
}

/// Returns the numeric names in a directory (the processes of /proc, the threads of a
/// process, its file descriptors), at most `limit` of them, and whether there are more.
pub(crate) fn numbered(dir: &Path, limit: usize) -> Result<(Vec<u32>, bool), Error> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(|source| Error::io(dir, source))? {
        let name = entry.map_err(|source| Error::io(dir, source))?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if numbers.len() == limit {
            return Ok((numbers, true));
        }
        numbers.push(number);
    }
    Ok((numbers, false))
}

/// Parses a decimal number; only white space may surround it.
pub(crate) fn parse_number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

//! Writes a recording: segments in a directory, bounded in bytes and age.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use virtlens_model::snapshot::Snapshot;

use crate::frame::{self, Encoder};
use crate::mark::Warnings;
use crate::segment::{FILE_MODE, FORMAT, Header, Writer};

/// Readings of a segment. A longer one is shorter in bytes, because only its first frame is
/// complete; but a reader decodes all frames before the one that it wants, and loses those
/// behind a damaged one.
const SEGMENT_READINGS: u32 = 128;

/// Length of all texts at which a segment ends: texts with numbers are new in each reading.
const SEGMENT_TEXT_BYTES: usize = 1 << 20;

/// Most segments in a directory are smaller than this share of the limit, so that the limit
/// is kept by removing a small part.
const SEGMENTS_AT_LEAST: u64 = 8;

/// Time between two waits for the disk: what a power failure may cost.
const SYNC_EVERY_NS: u64 = 10_000_000_000;

/// Segments that are removed because of their age for each one that begins. A clock that
/// jumps into the future does not remove the whole recording.
const EXPIRED_AT_ONCE: usize = 2;

/// Bounds of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all segments.
    pub max_bytes: u64,
    /// Age of a segment's last snapshot.
    pub max_age: Duration,
}

/// The writer of a recording.
pub struct Recorder {
    folder: PathBuf,
    limits: Limits,
    header: Header,
    /// Locked while this recorder writes.
    _lock: File,
    /// Finished segments, oldest first.
    segments: VecDeque<Finished>,
    next_number: u64,
    current: Option<Current>,
    encoder: Encoder,
    warnings: Warnings,
    frame: Vec<u8>,
}

#[derive(Debug)]
struct Finished {
    path: PathBuf,
    bytes: u64,
    /// Time of its last snapshot, or of its last change, ns since 1970.
    last_ns: u64,
}

#[derive(Debug)]
struct Current {
    writer: Writer,
    readings: u32,
    last_ns: u64,
    synced_ns: u64,
}

/// A snapshot was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another agent records in the directory.
    #[error("another agent records in {}", .0.display())]
    Busy(PathBuf),
    /// The disk refused it.
    #[error("cannot write to {}: {error}", path.display())]
    Disk {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// It could not be encoded, which would be a bug.
    #[error(transparent)]
    Encode(#[from] frame::Error),
}

impl Recorder {
    /// Prepares to record in a directory. One that does not exist is created; only its owner
    /// may read it and its files. Segments of earlier agents stay, within the limits.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used, or if another agent records in it.
    pub fn open(
        folder: &Path,
        limits: Limits,
        node: &str,
        version: &str,
        boot_id: Option<String>,
    ) -> Result<Self, Failure> {
        let disk = |error| Failure::Disk {
            path: folder.to_owned(),
            error,
        };
        create_folder(folder).map_err(disk)?;
        let mut private = File::options();
        private
            .create(true)
            .write(true)
            .truncate(false)
            .mode(FILE_MODE);
        let lock = private.open(folder.join("lock")).map_err(disk)?;
        let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => Failure::Busy(folder.to_owned()),
            error => disk(error.into()),
        })?;
        let mut segments = VecDeque::new();
        let mut next_number = 0;
        for (number, path) in list(folder).map_err(disk)? {
            let about = path.metadata().map_err(disk)?;
            let changed = about.modified().ok().and_then(|time| {
                let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
                u64::try_from(since.as_nanos()).ok()
            });
            next_number = number + 1;
            segments.push_back(Finished {
                path,
                bytes: about.len(),
                last_ns: changed.unwrap_or(0),
            });
        }
        let encoder = Encoder::new().map_err(frame::Error::Compress)?;
        Ok(Self {
            folder: folder.to_owned(),
            limits,
            header: Header {
                format: FORMAT,
                version: version.to_owned(),
                node: node.to_owned(),
                boot_id,
            },
            _lock: lock,
            segments,
            next_number,
            current: None,
            encoder,
            warnings: Warnings::default(),
            frame: Vec::new(),
        })
    }

    /// Records a snapshot; returns the length of its frame, bytes.
    ///
    /// # Errors
    ///
    /// If the disk refuses it: the snapshot is lost, and the next one begins a new segment.
    pub fn record(&mut self, snapshot: &Snapshot, unix_ns: u64) -> Result<u64, Failure> {
        let is_full = self.current.as_ref().is_some_and(|current| {
            current.readings >= SEGMENT_READINGS
                // Times only rise in a segment, also if the clock is set back.
                || unix_ns < current.last_ns
                || current.writer.bytes() >= self.limits.max_bytes / SEGMENTS_AT_LEAST
                || self.encoder.text_bytes() >= SEGMENT_TEXT_BYTES
        });
        if is_full {
            self.finish();
        }
        let written = self.write(snapshot, unix_ns);
        if let Err(failure) = &written {
            self.finish();
            if let Failure::Disk { error, .. } = failure
                && error.kind() == io::ErrorKind::StorageFull
            {
                // The latest readings matter most.
                self.remove_oldest();
            }
        }
        self.trim(unix_ns, is_full);
        written
    }

    fn write(&mut self, snapshot: &Snapshot, unix_ns: u64) -> Result<u64, Failure> {
        let path = self.folder.clone();
        let disk = move |error| Failure::Disk {
            path: path.clone(),
            error,
        };
        let mut current = if let Some(current) = self.current.take() {
            current
        } else {
            self.begin(unix_ns).map_err(&disk)?
        };
        self.frame.clear();
        let encoded = self.encoder.encode(snapshot, &mut self.frame);
        let written = match encoded {
            Ok(()) => {
                let (mark, warnings) = self.warnings.mark(snapshot, unix_ns);
                let appended = current.writer.append(mark, &self.frame);
                if appended.is_ok() {
                    self.warnings = warnings;
                }
                appended.map_err(&disk)
            }
            Err(error) => Err(error.into()),
        };
        if written.is_ok() {
            current.readings += 1;
            current.last_ns = unix_ns;
        }
        if current.readings == 0 {
            current.writer.remove();
        } else {
            self.current = Some(current);
        }
        written?;
        self.sync(unix_ns).map_err(disk)?;
        Ok(self.frame.len() as u64)
    }

    /// Begins a segment.
    fn begin(&mut self, unix_ns: u64) -> io::Result<Current> {
        self.encoder.restart();
        let name = format!("{:016}.{SUFFIX}", self.next_number);
        self.next_number += 1;
        let writer = Writer::create(self.folder.join(name), &self.header)?;
        Ok(Current {
            writer,
            readings: 0,
            last_ns: unix_ns,
            synced_ns: unix_ns,
        })
    }

    /// Waits for the disk, if it is time.
    fn sync(&mut self, unix_ns: u64) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if unix_ns.abs_diff(current.synced_ns) >= SYNC_EVERY_NS {
            current.writer.sync()?;
            current.synced_ns = unix_ns;
        }
        Ok(())
    }

    /// Ends the current segment, so that the next reading begins another one.
    pub fn rotate(&mut self) {
        self.finish();
    }

    /// Segments with a snapshot at a time or after it, ns since 1970, oldest first. The last one
    /// may still be written.
    pub fn segments_since(&self, unix_ns: u64) -> Vec<PathBuf> {
        let finished = self.segments.iter();
        let finished = finished.filter(|segment| segment.last_ns >= unix_ns);
        let paths = finished.map(|segment| segment.path.as_path());
        let current = self.current.iter().map(|current| current.writer.path());
        paths.chain(current).map(Path::to_owned).collect()
    }

    /// Ends the current segment.
    fn finish(&mut self) {
        let Some(current) = self.current.take() else {
            return;
        };
        // What the disk did not take is lost at a power failure only.
        drop(current.writer.sync());
        self.segments.push_back(Finished {
            bytes: current.writer.bytes(),
            last_ns: current.last_ns,
            path: current.writer.into_path(),
        });
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        let current = self
            .current
            .as_ref()
            .map_or(0, |current| current.writer.bytes());
        self.segments.iter().map(|one| one.bytes).sum::<u64>() + current
    }

    /// Removes segments over the limits.
    fn trim(&mut self, now_ns: u64, has_begun: bool) {
        while self.bytes() > self.limits.max_bytes && self.remove_oldest() {}
        if !has_begun {
            return;
        }
        for _ in 0..EXPIRED_AT_ONCE {
            let max_age_ns = u64::try_from(self.limits.max_age.as_nanos()).unwrap_or(u64::MAX);
            let is_old = |one: &Finished| now_ns.saturating_sub(one.last_ns) > max_age_ns;
            if !self.segments.front().is_some_and(is_old) || !self.remove_oldest() {
                break;
            }
        }
    }

    /// Removes the oldest finished segment; returns whether there was one.
    fn remove_oldest(&mut self) -> bool {
        let Some(oldest) = self.segments.front() else {
            return false;
        };
        match fs::remove_file(&oldest.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return false,
            _ => {}
        }
        self.segments.pop_front().is_some()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Creates the directory of a recording, unless it exists.
///
/// # Errors
///
/// The error of the system.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    // It has the names of pods and VMs, which only root may read.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

const SUFFIX: &str = "vlrec";

/// The segments of a directory with their numbers, in their order.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_segment = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        let number = path
            .file_stem()
            .and_then(|name| name.to_str()?.parse().ok());
        if let (Some(number), true) = (number, is_segment) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

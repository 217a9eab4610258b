//! The incidents of a recording: a directory each, with a file that describes the incident,
//! links to the segments of its time, and a trace.
//!
//! ```text
//! DIR/incidents/20260131T031000Z-000007/incident.json
//!                                       0000000000000042.vlrec   a link
//!                                       trace.pftrace
//! ```
//!
//! The file is written last, under another name first: a directory without it is a remainder
//! of an agent that was killed, and the next one removes it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::incident::{Incident, MAX_FILE, TRACE_FILE, id, number_of, parse_incident};

/// Most incidents of a recording.
const MAX_INCIDENTS: usize = 50;

/// Share of the limit that the segments of one incident may have.
const SEGMENTS_AT_MOST: u64 = 2;

const FILE: &str = "incident.json";
const NEW_FILE: &str = "incident.json.new";

/// Name of an unfinished trace.
const UNFINISHED_TRACE: &str = "trace.pftrace.part";

/// An incident that is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableIncident {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is damaged, or another version wrote it.
    #[error("{} is not an incident that this version reads: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

/// The incidents of a recording that an agent makes.
#[derive(Debug)]
pub struct Incidents {
    folder: PathBuf,
    max_bytes: u64,
    next_number: u64,
}

impl Incidents {
    /// Prepares to keep incidents of the recording in the directory `records`, in files of
    /// `max_bytes` together; returns the incidents of earlier agents, oldest first. Remainders
    /// of agents that were killed are removed.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used.
    pub fn open(records: &Path, max_bytes: u64) -> io::Result<(Self, Vec<Incident>)> {
        let folder = folder_of(records);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let mut kept = Vec::new();
        let mut next_number = 0;
        for (number, path) in directories(&folder)? {
            next_number = number + 1;
            if !path.join(FILE).exists() {
                fs::remove_dir_all(&path)?;
                continue;
            }
            for unfinished in [NEW_FILE, UNFINISHED_TRACE] {
                // Most incidents have none.
                drop(fs::remove_file(path.join(unfinished)));
            }
            kept.extend(read(&path).ok());
        }
        let incidents = Self {
            folder,
            max_bytes,
            next_number,
        };
        incidents.trim()?;
        kept.retain(|one: &Incident| incidents.path(&one.id).exists());
        Ok((incidents, kept))
    }

    /// Directory of the incident with an id.
    pub fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// Stores an incident, gives it its id, and keeps the segments, which are sorted by time.
    ///
    /// # Errors
    ///
    /// If the disk refuses it; nothing of it is left then.
    pub fn begin(&mut self, incident: &mut Incident, segments: &[PathBuf]) -> io::Result<()> {
        incident.id = id(&incident.time, self.next_number);
        self.next_number += 1;
        let path = self.path(&incident.id);
        DirBuilder::new().mode(0o700).create(&path)?;
        let stored = self
            .link(&incident.id, segments)
            .and_then(|()| self.save(incident));
        if stored.is_err() {
            // The next start tries it again.
            drop(fs::remove_dir_all(&path));
        }
        stored.and_then(|()| self.trim())
    }

    /// Keeps further segments, the last ones if all of them are too many.
    ///
    /// # Errors
    ///
    /// If the file system refuses it.
    pub fn link(&self, id: &str, segments: &[PathBuf]) -> io::Result<()> {
        let path = self.path(id);
        let mut bytes = 0_u64;
        for segment in segments.iter().rev() {
            let Some(name) = segment.file_name() else {
                continue;
            };
            match segment.metadata() {
                Ok(file) => bytes = bytes.saturating_add(file.len()),
                // The recording removed it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            if bytes > self.max_bytes / SEGMENTS_AT_MOST {
                break;
            }
            match fs::hard_link(segment, path.join(name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => linked?,
            }
        }
        Ok(())
    }

    /// Stores a changed incident.
    ///
    /// # Errors
    ///
    /// If the disk refuses it, or if the incident was removed.
    pub fn save(&self, incident: &Incident) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(incident).map_err(io::Error::other)?;
        if text.len() > MAX_FILE {
            return Err(io::Error::other("the names in the incident are too long"));
        }
        let path = self.path(&incident.id);
        let new = path.join(NEW_FILE);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(new, path.join(FILE))
    }

    /// Creates the empty file in which a trace is written.
    ///
    /// # Errors
    ///
    /// If the disk refuses it.
    pub fn begin_trace(&self, id: &str) -> io::Result<PathBuf> {
        let path = self.path(id).join(UNFINISHED_TRACE);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&path)?;
        Ok(path)
    }

    /// Gives a finished trace its name.
    ///
    /// # Errors
    ///
    /// If the disk refuses it.
    pub fn keep_trace(&self, incident: &mut Incident) -> io::Result<()> {
        let path = self.path(&incident.id);
        fs::rename(path.join(UNFINISHED_TRACE), path.join(TRACE_FILE))?;
        incident.trace = Some(TRACE_FILE.to_owned());
        self.save(incident)
    }

    /// Removes an unfinished trace.
    pub fn drop_trace(&self, id: &str) {
        // The next start tries it again.
        drop(fs::remove_file(self.path(id).join(UNFINISHED_TRACE)));
    }

    /// Removes the oldest incidents over the limits.
    ///
    /// # Errors
    ///
    /// If the disk refuses it.
    pub fn trim(&self) -> io::Result<()> {
        let mut paths = directories(&self.folder)?;
        while paths.len() > MAX_INCIDENTS || bytes(&paths)? > self.max_bytes {
            if paths.is_empty() {
                break;
            }
            let (_, oldest) = paths.remove(0);
            fs::remove_dir_all(oldest)?;
        }
        Ok(())
    }

    /// Removes the oldest incident, to free its space.
    ///
    /// # Errors
    ///
    /// If the disk refuses it.
    pub fn remove_oldest(&self) -> io::Result<()> {
        match directories(&self.folder)?.first() {
            Some((_, oldest)) => fs::remove_dir_all(oldest),
            None => Ok(()),
        }
    }
}

/// Directory with the incidents of the recording in `records`.
fn folder_of(records: &Path) -> PathBuf {
    records.join("incidents")
}

/// Directory of an incident of the recording in `records`; `None` if `id` is not an id.
pub fn incident_path(records: &Path, id: &str) -> Option<PathBuf> {
    number_of(id)?;
    Some(folder_of(records).join(id))
}

/// The incidents of the recording in the directory `records`, oldest first, and those that are
/// unreadable.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn incidents(records: &Path) -> io::Result<(Vec<Incident>, Vec<UnreadableIncident>)> {
    fs::metadata(records)?;
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    let paths = match directories(&folder_of(records)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        paths => paths?,
    };
    for (_, path) in paths {
        match read(&path) {
            Ok(incident) => readable.push(incident),
            // One that is about to begin, or that was just removed.
            Err(UnreadableIncident::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => unreadable.push(error),
        }
    }
    Ok((readable, unreadable))
}

/// The incident with an id of the recording in the directory `records`; `None` if it has none
/// with this id, or if `id` is not an id.
///
/// # Errors
///
/// If the incident is unreadable.
pub fn incident(records: &Path, id: &str) -> Result<Option<Incident>, UnreadableIncident> {
    let Some(path) = incident_path(records, id) else {
        return Ok(None);
    };
    match read(&path) {
        Err(UnreadableIncident::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Reads the incident in a directory.
fn read(path: &Path) -> Result<Incident, UnreadableIncident> {
    let file = path.join(FILE);
    let failed = |error| UnreadableIncident::Io {
        path: file.clone(),
        error,
    };
    let mut bytes = Vec::new();
    let opened = File::open(&file).map_err(failed)?;
    opened
        .take(MAX_FILE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let incident = parse_incident(&bytes).and_then(|incident| {
        let is_its_name = path.file_name().is_some_and(|name| *name == *incident.id);
        is_its_name
            .then_some(incident)
            .ok_or_else(|| "the id is that of another directory".to_owned())
    });
    incident.map_err(|reason| UnreadableIncident::Foreign { path: file, reason })
}

/// The directories of incidents with their numbers, oldest first. The clock may have jumped, so
/// the number decides.
fn directories(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(number_of);
        if let (Some(number), true) = (number, entry.file_type()?.is_dir()) {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Bytes of all files in these directories. A segment of several incidents counts once.
fn bytes(paths: &[(u64, PathBuf)]) -> io::Result<u64> {
    let mut files = BTreeMap::new();
    for (_, path) in paths {
        for entry in fs::read_dir(path)? {
            let about = entry?.metadata()?;
            files.insert(about.ino(), about.len());
        }
    }
    Ok(files.values().fold(0, |sum, len| sum.saturating_add(*len)))
}

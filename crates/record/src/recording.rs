//! Reads a recording.

use std::ops::Range;
use std::path::{Path, PathBuf};

use virtlens_model::snapshot::Snapshot;

use crate::frame::{Decoder, Unreadable};
use crate::mark::Mark;
use crate::recorder::list;
use crate::segment::{Header, Refused, Segment};

/// A recording: the segments of a directory, or one file.
#[derive(Debug)]
pub struct Recording {
    segments: Vec<Listed>,
}

/// A segment, of which only the start was read.
#[derive(Debug)]
struct Listed {
    path: PathBuf,
    header: Header,
    /// Time of its first snapshot, ns since 1970.
    first_ns: u64,
}

impl Listed {
    /// The loss of its last bytes.
    fn rest(&self, bytes: usize) -> Lost {
        Lost::Rest {
            path: self.path.clone(),
            bytes,
        }
    }
}

/// A snapshot of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// Time of the snapshot, ns since 1970.
    pub unix_ns: u64,
    /// The snapshot.
    pub snapshot: Snapshot,
}

/// A part of a recording is unreadable.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// A segment.
    #[error(transparent)]
    Segment(#[from] Refused),
    /// The rest of a segment: it was cut off by the end of the agent, or it is damaged.
    #[error("{}: the last {bytes} bytes are cut off or damaged", path.display())]
    Rest {
        /// The file.
        path: PathBuf,
        /// Length of the rest, bytes.
        bytes: usize,
    },
    /// The rest of a segment, from a frame on that another version wrote.
    #[error("{}: {error}", path.display())]
    Frame {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: Unreadable,
    },
}

impl Recording {
    /// Lists the segments of a directory, or opens one file; also returns those that are
    /// unreadable.
    ///
    /// # Errors
    ///
    /// If the path cannot be read.
    pub fn open(path: &Path) -> std::io::Result<(Self, Vec<Refused>)> {
        let paths = if path.is_dir() {
            list(path)?.into_iter().map(|(_, path)| path).collect()
        } else {
            std::fs::metadata(path)?;
            vec![path.to_owned()]
        };
        let (mut segments, mut refused) = (Vec::new(), Vec::new());
        for path in paths {
            match Segment::first(&path) {
                Ok(Some((header, first_ns))) => segments.push(Listed {
                    path,
                    header,
                    first_ns,
                }),
                // A segment begins before its first snapshot.
                Ok(None) => {}
                // The agent removes old ones.
                Err(Refused::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => refused.push(error),
            }
        }
        Ok((Self { segments }, refused))
    }

    /// The header of the last segment; `None` without one.
    pub fn header(&self) -> Option<&Header> {
        self.segments.last().map(|segment| &segment.header)
    }

    /// Time of the first snapshot, ns since 1970.
    pub fn first_ns(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.first_ns)
    }

    /// All readings in the order in which they were recorded, without their snapshots, and what
    /// is unreadable.
    pub fn marks(&self) -> (Vec<Mark>, Vec<Lost>) {
        let (mut marks, mut lost) = (Vec::new(), Vec::new());
        for listed in &self.segments {
            let segment = match Segment::read(&listed.path) {
                Ok(segment) => segment,
                Err(error) => {
                    lost.push(error.into());
                    continue;
                }
            };
            let mut offset = 0;
            loop {
                let (frame, end) = segment.frame_at(offset);
                let Some((mark, _)) = frame else {
                    if end > offset {
                        lost.push(listed.rest(end - offset));
                    }
                    break;
                };
                marks.push(mark);
                offset = end;
            }
        }
        (marks, lost)
    }

    /// The snapshots of a time, ns since 1970, in the order in which they were recorded, and
    /// what is unreadable.
    pub fn between(&self, time: Range<u64>) -> impl Iterator<Item = Result<Recorded, Lost>> {
        let next_ns = self.segments.iter().skip(1).map(|next| Some(next.first_ns));
        let segments = self.segments.iter().zip(next_ns.chain([None]));
        let Range { start, end } = time;
        let segments = segments.filter(move |(segment, next_ns)| {
            // After a clock was set back, a segment may reach beyond the start of the next.
            let reaches = next_ns.is_none_or(|next| next >= start || next <= segment.first_ns);
            segment.first_ns < end && reaches
        });
        segments.flat_map(move |(segment, _)| Walk::of(&segment.path, start..end))
    }

    /// The last snapshot at or before a time, ns since 1970.
    ///
    /// # Errors
    ///
    /// If its segment is unreadable.
    pub fn at(&self, unix_ns: u64) -> Result<Option<Recorded>, Lost> {
        let segments = self.segments.iter().rev();
        for listed in segments.filter(|one| one.first_ns <= unix_ns) {
            let segment = Segment::read(&listed.path)?;
            let frames = segment.frames();
            let Some(last) = frames.iter().rposition(|(mark, _)| mark.unix_ns <= unix_ns) else {
                continue;
            };
            let mut decoder = Decoder::default();
            let frame = |error| Lost::Frame {
                path: listed.path.clone(),
                error,
            };
            let mut unix_ns = listed.first_ns;
            for (mark, bytes) in frames.iter().take(last + 1) {
                decoder.apply(bytes).map_err(frame)?;
                unix_ns = mark.unix_ns;
            }
            let snapshot = decoder.snapshot().map_err(frame)?;
            return Ok(Some(Recorded { unix_ns, snapshot }));
        }
        Ok(None)
    }
}

/// Goes through the snapshots of a segment, one in memory at a time.
struct Walk {
    path: PathBuf,
    time: Range<u64>,
    /// `None` once the end, or an unreadable part, was reached.
    segment: Option<Result<Segment, Refused>>,
    offset: usize,
    decoder: Decoder,
}

impl Walk {
    fn of(path: &Path, time: Range<u64>) -> Self {
        Self {
            path: path.to_owned(),
            time,
            segment: Some(Segment::read(path)),
            offset: 0,
            decoder: Decoder::default(),
        }
    }

    /// The next snapshot of the time.
    fn step(&mut self, segment: &Segment) -> Option<Result<Recorded, Lost>> {
        let path = || self.path.clone();
        loop {
            let (frame, end) = segment.frame_at(self.offset);
            let Some((mark, frame)) = frame else {
                let bytes = end - self.offset;
                let path = path();
                return (bytes > 0).then_some(Err(Lost::Rest { path, bytes }));
            };
            self.offset = end;
            let unix_ns = mark.unix_ns;
            let is_wanted = self.time.contains(&unix_ns);
            let applied = self.decoder.apply(frame);
            let snapshot = match applied {
                Ok(()) if !is_wanted => continue,
                Ok(()) => self.decoder.snapshot(),
                Err(error) => Err(error),
            };
            let recorded = snapshot.map(|snapshot| Recorded { unix_ns, snapshot });
            return Some(recorded.map_err(|error| Lost::Frame {
                path: path(),
                error,
            }));
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Recorded, Lost>;

    fn next(&mut self) -> Option<Self::Item> {
        let segment = match self.segment.take()? {
            Ok(segment) => segment,
            Err(error) => return Some(Err(error.into())),
        };
        let next = self.step(&segment);
        if let Some(Ok(_)) = next {
            self.segment = Some(Ok(segment));
        }
        next
    }
}

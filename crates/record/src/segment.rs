//! A file of a recording: a header, a complete frame, and differences to it.
//!
//! ```text
//! magic │ header │ frame │ frame │ …      a frame: length, CRC-32, mark, bytes
//! ```
//!
//! A frame is written at once, and one that is cut off or damaged ends the file for its
//! reader: all frames before it are whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::mark::Mark;
use crate::varint::Bytes;

/// The first bytes of each file.
const MAGIC: &[u8; 16] = b"virtlens-record\n";

/// Version of the format of files. Format 1 was in no release.
pub(crate) const FORMAT: u32 = 3;

/// Mode of files: only the owner may read them.
pub(crate) const FILE_MODE: u32 = 0o600;

/// Longest file that is read, bytes. A writer ends a file long before.
const MAX_FILE: u64 = 256 << 20;

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Version of the agent that wrote it.
    pub version: String,
    /// Name of the node.
    pub node: String,
    /// Id of the node's boot, if known (`/proc/sys/kernel/random/boot_id`). Clocks and
    /// counters of different boots are not comparable.
    pub boot_id: Option<String>,
}

/// A segment that is being written.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Writer {
    /// Creates a segment.
    pub(crate) fn create(path: PathBuf, header: &Header) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)?;
        let mut writer = Self {
            file,
            path,
            bytes: 0,
            buffer: MAGIC.to_vec(),
        };
        let text = serde_json::to_vec(header).map_err(io::Error::other)?;
        put_frame(&mut writer.buffer, Mark::default(), &text);
        if let Err(error) = writer.write() {
            writer.remove();
            return Err(error);
        }
        Ok(writer)
    }

    /// Appends a frame.
    pub(crate) fn append(&mut self, mark: Mark, frame: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        put_frame(&mut self.buffer, mark, frame);
        self.write()
    }

    /// Writes the buffer at once. After an error the file is as before, as far as the disk
    /// allows it; a reader ignores the rest.
    fn write(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.write_all(&self.buffer) {
            // The error of the write says more.
            drop(self.file.set_len(self.bytes));
            return Err(error);
        }
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Length of the file, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until the disk has what was written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file.
    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }

    /// Removes a file that has no frame.
    pub(crate) fn remove(self) {
        // It is bounded like any other segment.
        drop(std::fs::remove_file(&self.path));
    }
}

fn put_frame(out: &mut Vec<u8>, mark: Mark, payload: &[u8]) {
    let head = Head {
        len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        mark,
    };
    out.extend_from_slice(&head.len.to_le_bytes());
    out.extend_from_slice(&head.checksum(payload).to_le_bytes());
    out.extend_from_slice(&mark.unix_ns.to_le_bytes());
    out.extend_from_slice(&mark.warnings.to_le_bytes());
    out.extend_from_slice(&mark.begun.to_le_bytes());
    out.extend_from_slice(payload);
}

/// A segment that is not readable as a whole.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The file is not a recording, or its header is damaged.
    #[error("{} is not a recording of virtlens, or its header is damaged", .0.display())]
    Foreign(PathBuf),
    /// The file has another format.
    #[error(
        "{} has format {format}; this version reads format {FORMAT}: use virtlens {version}",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The version that wrote it.
        version: String,
    },
}

/// A frame and its reading.
pub(crate) type Frame<'b> = (Mark, &'b [u8]);

/// The content of a segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    content: Vec<u8>,
    frames: usize,
}

impl Segment {
    /// Reads a whole file.
    pub(crate) fn read(path: &Path) -> Result<Self, Refused> {
        let refused = |error| Refused::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(refused)?;
        let mut content = Vec::new();
        let read = io::Read::take(&file, MAX_FILE);
        io::Read::read_to_end(&mut { read }, &mut content).map_err(refused)?;
        Self::parse(content, path)
    }

    /// Reads the header and the time of the first snapshot, without the rest. `None` without a
    /// snapshot: a writer that was killed may leave an empty file, or one with only a header.
    pub(crate) fn first(path: &Path) -> Result<Option<(Header, u64)>, Refused> {
        let refused = |error| Refused::Io {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(refused)?;
        let mut content = Vec::new();
        // The header has some hundred bytes.
        let read = io::Read::take(&file, 4096);
        io::Read::read_to_end(&mut { read }, &mut content).map_err(refused)?;
        if content.is_empty() {
            return Ok(None);
        }
        let segment = Self::parse(content, path)?;
        let mut rest = Bytes(segment.content.get(segment.frames..).unwrap_or_default());
        let first = Head::read(&mut rest);
        Ok(first.map(|(head, _)| (segment.header, head.mark.unix_ns)))
    }

    fn parse(content: Vec<u8>, path: &Path) -> Result<Self, Refused> {
        let foreign = || Refused::Foreign(path.to_owned());
        let mut rest = Bytes(&content);
        if rest.take(MAGIC.len()) != Some(MAGIC) {
            return Err(foreign());
        }
        let (_, text) = next(&mut rest).ok_or_else(foreign)?;
        let frames = content.len() - rest.0.len();
        let header: Header = serde_json::from_slice(text).map_err(|_| foreign())?;
        if header.format != FORMAT {
            return Err(Refused::Format {
                path: path.to_owned(),
                format: header.format,
                version: header.version,
            });
        }
        Ok(Self {
            header,
            content,
            frames,
        })
    }

    /// The frame at an offset behind the header, and where it ends. `None` at the end, and
    /// if the rest is cut off or damaged; then the file ends there.
    pub(crate) fn frame_at(&self, offset: usize) -> (Option<Frame<'_>>, usize) {
        let all = self.content.get(self.frames..).unwrap_or_default();
        let mut rest = Bytes(all.get(offset..).unwrap_or_default());
        let frame = next(&mut rest);
        let end = all.len() - rest.0.len();
        (frame, if frame.is_some() { end } else { all.len() })
    }

    /// All whole frames.
    pub(crate) fn frames(&self) -> Vec<Frame<'_>> {
        let mut rest = Bytes(self.content.get(self.frames..).unwrap_or_default());
        std::iter::from_fn(|| next(&mut rest)).collect()
    }
}

/// The header of a frame without its checksum.
struct Head {
    len: u32,
    mark: Mark,
}

impl Head {
    /// The header and its checksum.
    fn read(rest: &mut Bytes<'_>) -> Option<(Self, u32)> {
        let len = u32::from_le_bytes(*rest.take(4)?.as_array()?);
        let checksum = u32::from_le_bytes(*rest.take(4)?.as_array()?);
        let mark = Mark {
            unix_ns: u64::from_le_bytes(*rest.take(8)?.as_array()?),
            warnings: u32::from_le_bytes(*rest.take(4)?.as_array()?),
            begun: u32::from_le_bytes(*rest.take(4)?.as_array()?),
        };
        Some((Self { len, mark }, checksum))
    }

    /// CRC-32 of a frame without its checksum.
    fn checksum(&self, payload: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.len.to_le_bytes());
        hasher.update(&self.mark.unix_ns.to_le_bytes());
        hasher.update(&self.mark.warnings.to_le_bytes());
        hasher.update(&self.mark.begun.to_le_bytes());
        hasher.update(payload);
        hasher.finalize()
    }
}

/// The next frame; `None` if it is cut off or damaged.
fn next<'b>(rest: &mut Bytes<'b>) -> Option<Frame<'b>> {
    let (head, checksum) = Head::read(rest)?;
    let payload = rest.take(usize::try_from(head.len).ok()?)?;
    (head.checksum(payload) == checksum).then_some((head.mark, payload))
}

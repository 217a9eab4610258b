//! Pins that keep maps and links while no agent runs: a directory on bpffs.
//!
//! ```text
//! <bpffs>/virtlens/maps/NAME-LAYOUT       counters
//!                  links/NAME-PROGRAMS    keep the programs attached
//!                  programs/…             the programs themselves: only root may
//!                                         query the program of a link
//! ```
//!
//! `LAYOUT` is the fingerprint of a map's definition (`MapDefinition` in `object.rs`),
//! and `PROGRAMS` that of the object and its constants. So an agent finds its maps and
//! programs by name, and does not open files with another fingerprint. The process that
//! holds the lock on the directory is the node's agent; the kernel releases the lock with
//! the process, however it exits.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs};

/// `BPF_FS_MAGIC`, `include/uapi/linux/magic.h`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// The directory below a bpffs.
const NAME: &str = "virtlens";

/// Its subdirectories, in the order in which they are emptied: programs that still run
/// would fill maps that no agent can find.
const PARTS: [&str; 3] = ["links", "programs", "maps"];

/// The directory of the node's agent, held by this process.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// The reason why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Another agent holds the lock.
    #[error(
        "another virtlens agent on this node holds {0}; stop it, or start this one with --no-pin"
    )]
    Busy(PathBuf),
    /// There is no writable bpffs.
    #[error("{0}")]
    Unavailable(String),
}

/// The numbers of removed programs and maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Programs that were attached.
    pub links: usize,
    /// Maps, with their counters.
    pub maps: usize,
}

impl Pins {
    /// Locks the directory below `bpffs`, and creates it if necessary.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn take(bpffs: &Path) -> Result<Self, Refusal> {
        is_bpffs(bpffs)?;
        let dir = bpffs.join(NAME);
        for part in [dir.clone()]
            .into_iter()
            .chain(PARTS.map(|part| dir.join(part)))
        {
            match fs::create_dir(&part) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(unavailable(&part, "cannot create", &error));
                }
                _ => {}
            }
        }
        let lock = File::open(&dir).map_err(|error| unavailable(&dir, "cannot open", &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Refusal::Busy(dir)),
            Err(TryLockError::Error(error)) => Err(unavailable(&dir, "cannot lock", &error)),
        }
    }

    /// Whether a former agent left anything below `bpffs`.
    pub fn exist(bpffs: &Path) -> bool {
        bpffs.join(NAME).exists()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of a map of this layout.
    pub(crate) fn map(&self, name: &str, layout: u64) -> PathBuf {
        self.dir.join("maps").join(format!("{name}-{layout:016x}"))
    }

    /// Path of the link of a program of this fingerprint.
    pub(crate) fn link(&self, program: &str, programs: u64) -> PathBuf {
        self.dir
            .join("links")
            .join(format!("{program}-{programs:016x}"))
    }

    /// Path of a program of this fingerprint.
    pub(crate) fn program(&self, program: &str, programs: u64) -> PathBuf {
        self.dir
            .join("programs")
            .join(format!("{program}-{programs:016x}"))
    }

    /// Whether a former agent, of whatever version, left programs attached. If that is
    /// unknown, it may have.
    pub(crate) fn has_links(&self) -> bool {
        let links = fs::read_dir(self.dir.join("links"));
        links.map_or(true, |mut links| links.next().is_some())
    }

    /// Removes all files except these. Returns the removed ones.
    pub(crate) fn keep_only(&self, kept: &BTreeSet<PathBuf>) -> io::Result<Vec<PathBuf>> {
        let mut gone = Vec::new();
        for part in PARTS {
            for entry in fs::read_dir(self.dir.join(part))? {
                let path = entry?.path();
                if !kept.contains(&path) {
                    fs::remove_file(&path)?;
                    gone.push(path);
                }
            }
        }
        Ok(gone)
    }

    /// Removes all files, and the directory.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn clean(self) -> io::Result<Removed> {
        let gone = self.keep_only(&BTreeSet::new())?;
        for part in PARTS.into_iter().chain([""]) {
            fs::remove_dir(self.dir.join(part))?;
        }
        let of = |part| gone.iter().filter(|path| is_of(path, part)).count();
        Ok(Removed {
            links: of("links"),
            maps: of("maps"),
        })
    }

    /// Returns the maps among these files.
    pub(crate) fn maps_of(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
        let files = files.iter().map(PathBuf::as_path);
        files.filter(|path| is_of(path, "maps"))
    }
}

fn is_of(path: &Path, part: &str) -> bool {
    path.parent().and_then(Path::file_name) == Some(OsStr::new(part))
}

/// Checks that `dir` is a writable bpffs.
///
/// # Errors
/// [`Refusal::Unavailable`] with the remedy.
pub fn is_bpffs(dir: &Path) -> Result<(), Refusal> {
    let mount = "mount one with: mount -t bpf bpf /sys/fs/bpf";
    let refuse = |why: &str| Err(Refusal::Unavailable(format!("{}: {why}", dir.display())));
    let found = match statfs(dir) {
        Ok(found) => found,
        Err(error) => {
            let error = io::Error::from(error);
            return refuse(&format!("cannot read it: {error}; {mount}"));
        }
    };
    if found.f_type != BPF_FS_MAGIC {
        return refuse(&format!("not a BPF file system; {mount}"));
    }
    if access(dir, Access::WRITE_OK).is_err() {
        return refuse("not writable; in a container mount it without readOnly");
    }
    Ok(())
}

fn unavailable(path: &Path, what: &str, error: &io::Error) -> Refusal {
    Refusal::Unavailable(format!("{what} {}: {error}", path.display()))
}

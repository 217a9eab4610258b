//! Where maps and links stay while no agent runs: a directory on bpffs.
//!
//! ```text
//! <bpffs>/virtlens/maps/NAME-LAYOUT       what was counted
//!                  links/NAME-PROGRAMS    what counts on
//!                  programs/…             the same: of a link only root may ask what it runs
//! ```
//!
//! `LAYOUT` is the fingerprint of all that a map is (see [`crate::layout`]) and
//! `PROGRAMS` that of the object and of what it was told. So another agent finds what
//! is its own by the name alone; what bears another fingerprint it does not open.
//! Whoever holds the lock on the directory is the node's agent; the kernel drops it
//! with the process, however that ends.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// `BPF_FS_MAGIC`, `include/uapi/linux/magic.h`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// The directory below a bpffs.
const NAME: &str = "virtlens";

/// Its parts, in the order in which they are emptied: programs that still run would
/// fill maps that nobody finds any more.
const PARTS: [&str; 3] = ["links", "programs", "maps"];

/// The directory of the node's agent, held by this process.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
    /// Bears the lock.
    _lock: File,
}

/// Why the directory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Another agent holds it.
    #[error(
        "another virtlens agent runs on this node and holds {0}; stop it, or give this one \
         --no-pin"
    )]
    Busy(PathBuf),
    /// There is no bpffs, or none that can be written to.
    #[error("{0}")]
    Unavailable(String),
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Programs that were attached.
    pub links: usize,
    /// Maps, with what they had counted.
    pub maps: usize,
}

impl Pins {
    /// Takes the directory below `bpffs`, which is made if it is not there.
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
                    return Err(unavailable(&part, "cannot be made", &error));
                }
                _ => {}
            }
        }
        let lock =
            File::open(&dir).map_err(|error| unavailable(&dir, "cannot be opened", &error))?;
        // SAFETY: flock takes a descriptor that is open, and a plain number.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = io::Error::last_os_error();
            return Err(if error.kind() == ErrorKind::WouldBlock {
                Refusal::Busy(dir)
            } else {
                unavailable(&dir, "cannot be locked", &error)
            });
        }
        Ok(Self { dir, _lock: lock })
    }

    /// Whether there is anything below `bpffs` that an agent left.
    pub fn exist(bpffs: &Path) -> bool {
        bpffs.join(NAME).exists()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a map of this layout is, or is to be.
    pub(crate) fn map(&self, name: &str, layout: u64) -> PathBuf {
        self.dir.join("maps").join(format!("{name}-{layout:016x}"))
    }

    /// Where the link of one of these programs is, or is to be.
    pub(crate) fn link(&self, program: &str, programs: u64) -> PathBuf {
        self.dir
            .join("links")
            .join(format!("{program}-{programs:016x}"))
    }

    /// Where one of these programs is, or is to be.
    pub(crate) fn program(&self, program: &str, programs: u64) -> PathBuf {
        self.dir
            .join("programs")
            .join(format!("{program}-{programs:016x}"))
    }

    /// Removes all but these. Returns what is gone.
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

    /// Removes all, and the directory.
    ///
    /// # Errors
    /// What the file system said.
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

    /// The maps among these files.
    pub(crate) fn maps_of(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
        let files = files.iter().map(PathBuf::as_path);
        files.filter(|path| is_of(path, "maps"))
    }
}

fn is_of(path: &Path, part: &str) -> bool {
    path.parent().and_then(Path::file_name) == Some(OsStr::new(part))
}

/// Whether `dir` is a bpffs that can be written to.
///
/// # Errors
/// [`Refusal::Unavailable`] with the remedy.
pub fn is_bpffs(dir: &Path) -> Result<(), Refusal> {
    let mount = "mount one (mount -t bpf bpf /sys/fs/bpf)";
    let refuse = |what: &str| Err(Refusal::Unavailable(format!("{} {what}", dir.display())));
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return refuse("is no path");
    };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a C string, and room for what is told.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return refuse(&format!(
            "cannot be read ({}); {mount}",
            io::Error::last_os_error()
        ));
    }
    // SAFETY: statfs has filled it.
    let found = unsafe { found.assume_init() };
    if found.f_type != BPF_FS_MAGIC {
        return refuse(&format!("is no BPF file system; {mount}"));
    }
    // SAFETY: a C string, and a plain number.
    if unsafe { libc::access(path.as_ptr(), libc::W_OK) } != 0 {
        return refuse("cannot be written to; in a container mount it without readOnly");
    }
    Ok(())
}

fn unavailable(path: &Path, what: &str, error: &io::Error) -> Refusal {
    Refusal::Unavailable(format!("{} {what}: {error}", path.display()))
}

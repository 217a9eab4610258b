//! A host with injectable file faults: a FUSE file system that shows /proc and /sys
//! unchanged except for the faults that were set.
//!
//! A process can use it as its `--root`, or a `HostRoot` can be created from it. Faults
//! can include statements that the kernel would never make, such as that a living process
//! is gone: a reader may believe them, but must not panic.

mod fault;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

pub use fault::Fault;
use fault::SLOW;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, Request, SessionACL,
};
use tempfile::TempDir;

/// Returns the fault of a file, by its path below the root, such as `proc/1/stat`.
type Judge = Box<dyn FnMut(&Path) -> Option<Fault> + Send>;

/// A mounted tree with `proc` and `sys`. It has no faults until one is set.
pub struct FaultyHost {
    // Before the folder that it is mounted on, because fields are dropped in order.
    _session: BackgroundSession,
    folder: TempDir,
    faults: Arc<Faults>,
}

impl std::fmt::Debug for FaultyHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyHost").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Faults(Mutex<(Option<Judge>, u64)>);

impl FaultyHost {
    /// Mounts the tree.
    pub fn mount() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let faults = Arc::new(Faults::default());
        let tree = Tree::new(Arc::clone(&faults));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("faulty".to_owned())];
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(tree, folder.path(), &config);
        Self {
            _session: session.expect("root may mount it"),
            folder,
            faults,
        }
    }

    /// Path of the tree.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces the faults of all files by those that `judge` returns.
    pub fn set(&self, judge: impl FnMut(&Path) -> Option<Fault> + Send + 'static) {
        *self.faults.lock() = (Some(Box::new(judge)), 0);
    }

    /// Removes all faults; returns how often one occurred since they were set.
    pub fn heal(&self) -> u64 {
        std::mem::take(&mut *self.faults.lock()).1
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, (Option<Judge>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of a file in use, if it is one that `shows` accepts.
    fn of(&self, path: &Path, shows: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut set = self.lock();
        let fault = set.0.as_mut().and_then(|judge| judge(path));
        let fault = fault.filter(|fault| shows(*fault))?;
        set.1 += 1;
        drop(set);
        if fault == Fault::Slow {
            sleep(SLOW);
        }
        Some(fault)
    }
}

/// An open file or directory.
enum Open {
    File(OpenFile),
    Dir(Vec<(u64, fuser::FileType, OsString)>, Option<Fault>),
}

/// A file as of its last read from the start: files of /proc and /sys have their present
/// content then.
#[derive(Clone, Default)]
struct OpenFile {
    text: Vec<u8>,
    fault: Option<Fault>,
    was_read: bool,
}

/// The file system.
struct Tree {
    faults: Arc<Faults>,
    known: Mutex<Known>,
}

struct Known {
    /// Paths by node number; the root is the first.
    paths: Vec<PathBuf>,
    nodes: HashMap<PathBuf, u64>,
    open: HashMap<u64, Open>,
    opened: u64,
}

/// The kernel caches nothing, so that a fault holds from the moment it is set.
const TTL: Duration = Duration::ZERO;

impl Tree {
    fn new(faults: Arc<Faults>) -> Self {
        Self {
            faults,
            known: Mutex::new(Known {
                // Node numbers begin with 1, the root's.
                paths: vec![PathBuf::new(), PathBuf::new()],
                nodes: HashMap::new(),
                open: HashMap::new(),
                opened: 0,
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of a node below the root.
    fn path(&self, node: INodeNo) -> PathBuf {
        let at = usize::try_from(node.0).expect("it was given out");
        self.known().paths[at].clone()
    }

    fn node(&self, path: PathBuf) -> u64 {
        let mut known = self.known();
        if let Some(node) = known.nodes.get(&path) {
            return *node;
        }
        let node = known.paths.len() as u64;
        known.paths.push(path.clone());
        known.nodes.insert(path, node);
        node
    }

    /// The present content of a file, and the fault that the reader sees.
    fn file(&self, path: &Path) -> Result<OpenFile, Errno> {
        let fault = self.faults.of(path, |_| true);
        if let Some(error) = fault.and_then(Fault::of_open) {
            return Err(error);
        }
        let text = fs::read(real(path))?;
        Ok(OpenFile {
            text: match fault {
                Some(fault) => fault.spoil(text),
                None => text,
            },
            fault,
            was_read: false,
        })
    }

    fn open_as(&self, open: io::Result<Open>, reply: ReplyOpen) {
        match open {
            Ok(open) => {
                let mut known = self.known();
                known.opened += 1;
                let handle = known.opened;
                known.open.insert(handle, open);
                // Files of /proc have no size: they are read until they end.
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(error.into()),
        }
    }
}

fn real(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

fn kind(kind: FileType) -> fuser::FileType {
    if kind.is_dir() {
        fuser::FileType::Directory
    } else if kind.is_symlink() {
        fuser::FileType::Symlink
    } else if kind.is_char_device() {
        fuser::FileType::CharDevice
    } else {
        fuser::FileType::RegularFile
    }
}

/// Attributes of the real file, including its inode number: a cgroup's is its id.
fn attributes(node: u64, real: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: real.size(),
        blocks: real.blocks(),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: kind(real.file_type()),
        perm: 0o755,
        nlink: 1,
        uid: real.uid(),
        gid: real.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn list(path: &Path, fault: Option<Fault>) -> io::Result<Open> {
    let mut names = Vec::new();
    for entry in fs::read_dir(real(path))?.flatten() {
        names.push((entry.ino(), kind(entry.file_type()?), entry.file_name()));
    }
    match fault {
        Some(Fault::Empty) => names.clear(),
        Some(Fault::Cut) => names.truncate(names.len() / 2),
        Some(Fault::Garbage) => {
            let noise = Fault::Garbage.spoil(Vec::new());
            let noise = OsStr::from_bytes(&noise).to_owned();
            for (_, _, name) in &mut names {
                name.clone_from(&noise);
            }
        }
        _ => {}
    }
    Ok(Open::Dir(names, fault))
}

impl Filesystem for Tree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        let is_missing = |fault| fault == Fault::Missing;
        if self.faults.of(&path, is_missing).is_some() {
            return reply.error(Errno::ENOENT);
        }
        match fs::symlink_metadata(real(&path)) {
            Ok(found) => reply.entry(&TTL, &attributes(self.node(path), &found), Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match fs::symlink_metadata(real(&self.path(node))) {
            Ok(found) => reply.attr(&TTL, &attributes(found.ino(), &found)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let path = self.path(node);
        let fault = self.faults.of(&path, |_| true);
        if let Some(error) = fault.and_then(|fault| fault.of_open().or(fault.of_read())) {
            return reply.error(error);
        }
        match fs::read_link(real(&path)) {
            Ok(to) => {
                let to = to.as_os_str().as_bytes().to_vec();
                reply.data(&fault.map_or(to.clone(), |fault| fault.spoil(to)));
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.file(&self.path(node)) {
            Ok(file) => self.open_as(Ok(Open::File(file)), reply),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut file = match self.known().open.get(&handle.0) {
            Some(Open::File(file)) => file.clone(),
            _ => return reply.error(Errno::EBADF),
        };
        if offset == 0 && file.was_read {
            file = match self.file(&self.path(node)) {
                Ok(file) => file,
                Err(error) => return reply.error(error),
            };
        }
        file.was_read = true;
        let OpenFile { text, fault, .. } = &file;
        self.known().open.insert(handle.0, Open::File(file.clone()));
        if let Some(error) = fault.and_then(Fault::of_read) {
            return reply.error(error);
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let size = size as usize;
        if *fault == Some(Fault::Endless) && !text.is_empty() {
            let endless = text.iter().cycle().skip(start % text.len());
            return reply.data(&endless.take(size).copied().collect::<Vec<u8>>());
        }
        let rest = text.get(start..).unwrap_or_default();
        reply.data(&rest[..rest.len().min(size)]);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.known().open.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let path = self.path(node);
        let fault = self.faults.of(&path, |_| true);
        if let Some(error) = fault.and_then(Fault::of_open) {
            return reply.error(error);
        }
        self.open_as(list(&path, fault), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let known = self.known();
        let Some(Open::Dir(names, fault)) = known.open.get(&handle.0) else {
            return reply.error(Errno::EBADF);
        };
        if let Some(error) = fault.and_then(Fault::of_read) {
            return reply.error(error);
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for ((inode, kind, name), next) in names.iter().zip(1u64..).skip(from) {
            if reply.add(INodeNo(*inode), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.known().open.remove(&handle.0);
        reply.ok();
    }
}

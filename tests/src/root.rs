//! A host's /proc and /sys with a private BPF file system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::Bpffs;

/// The BTF name by which an agent decides where the programs keep the state of threads.
pub const TASK_STORAGE: &str = "BPF_MAP_TYPE_TASK_STORAGE";

/// Removed on drop, with all that is pinned there.
#[derive(Debug)]
pub struct Root {
    // Before the folder, because fields are dropped in order: this unmounts it.
    _bpffs: Option<Bpffs>,
    folder: tempfile::TempDir,
}

impl Root {
    /// The running host with an empty BPF file system.
    pub fn with_bpffs() -> Self {
        let root = Self::without_bpffs();
        let bpffs = Bpffs::mount(&root.bpffs());
        Self {
            _bpffs: Some(bpffs),
            ..root
        }
    }

    /// The running host without a BPF file system.
    pub fn without_bpffs() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        symlink("/proc", folder.path().join("proc")).expect("a link can be made");
        for part in ["sys/devices", "sys/fs/cgroup", "sys/kernel"] {
            let link = folder.path().join(part);
            fs::create_dir_all(link.parent().expect("it is below the root")).expect("a folder");
            symlink(Path::new("/").join(part), link).expect("a link can be made");
        }
        let root = Self {
            _bpffs: None,
            folder,
        };
        fs::create_dir(root.bpffs()).expect("a folder");
        root
    }

    /// Hides this word from the kernel's BTF, or shows it again.
    pub fn set_knows(&self, word: &str, knows: bool) {
        const TYPES: &str = "sys/kernel/btf/vmlinux";
        let kernel = self.path().join("sys/kernel");
        if kernel.is_symlink() {
            fs::remove_file(&kernel).expect("it is a link");
            fs::create_dir_all(kernel.join("btf")).expect("a folder");
            for entry in fs::read_dir("/sys/kernel").expect("it is there").flatten() {
                if entry.file_name() != "btf" {
                    let link = kernel.join(entry.file_name());
                    symlink(entry.path(), link).expect("a link can be made");
                }
            }
        }
        let mut types = fs::read(Path::new("/").join(TYPES)).expect("it has types");
        let mut windows = types.windows(word.len());
        let at = windows.position(|bytes| bytes == word.as_bytes());
        if let (Some(at), false) = (at, knows) {
            types[at] = b'_';
        }
        fs::write(self.path().join(TYPES), types).expect("a file");
    }

    /// The directory that replaces `/`.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Directory of the agent's pins.
    pub fn pins(&self) -> PathBuf {
        self.bpffs().join("virtlens")
    }

    fn bpffs(&self) -> PathBuf {
        self.path().join("sys/fs/bpf")
    }
}

//! A host's /proc and /sys with a BPF file system of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use virtlens_tests::Bpffs;

/// By it an agent decides where the programs keep their marks.
pub(crate) const TASK_STORAGE: &str = "BPF_MAP_TYPE_TASK_STORAGE";

/// Goes with all that is pinned there.
pub(super) struct Root {
    // Before the folder in which it is mounted.
    _bpffs: Option<Bpffs>,
    folder: tempfile::TempDir,
}

impl Root {
    pub(super) fn new() -> Self {
        let root = Self::without_bpffs();
        let bpffs = Bpffs::mount(&root.bpffs());
        Self {
            _bpffs: Some(bpffs),
            ..root
        }
    }

    pub(super) fn without_bpffs() -> Self {
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

    /// A kernel that says the same of itself but for this word, or says it again.
    pub(super) fn set_knows(&self, word: &str, knows: bool) {
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

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the agent's pins are.
    pub(super) fn pins(&self) -> PathBuf {
        self.bpffs().join("virtlens")
    }

    fn bpffs(&self) -> PathBuf {
        self.path().join("sys/fs/bpf")
    }
}

//! A private BPF file system, so that no agent of this host interferes.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A mounted bpffs; unmounted on drop, with all objects that are pinned there.
#[derive(Debug)]
pub struct Bpffs {
    at: PathBuf,
}

impl Bpffs {
    /// Mounts a bpffs on a directory.
    pub fn mount(at: &Path) -> Self {
        mount("bpf", at, "bpf", MountFlags::empty(), None::<&CStr>)
            .unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        Self { at: at.to_owned() }
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        unmount(&self.at, UnmountFlags::DETACH).ok();
    }
}

//! A private BPF file system, so that no agent of this host interferes.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A mounted bpffs; unmounted on drop, with all objects that are pinned there.
#[derive(Debug)]
pub struct Bpffs {
    at: CString,
}

impl Bpffs {
    /// Mounts a bpffs on a directory.
    pub fn mount(at: &Path) -> Self {
        let at = CString::new(at.as_os_str().as_bytes()).expect("paths have no NUL");
        let kind = c"bpf".as_ptr();
        // SAFETY: C strings, no flags, no data.
        let failed = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, std::ptr::null()) };
        assert_eq!(failed, 0, "{at:?}: {}", std::io::Error::last_os_error());
        Self { at }
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        // SAFETY: a C string and a plain number.
        unsafe { libc::umount2(self.at.as_ptr(), libc::MNT_DETACH) };
    }
}

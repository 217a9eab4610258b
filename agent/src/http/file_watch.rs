//! Detects changes of files while the agent runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Attributes of a file that change when it is replaced or written. Symbolic links are
/// followed: Kubernetes replaces a link above the file, which changes the inode.
type Stamp = (u64, u64, u64, [i64; 4]);

/// The files that were read, each with its stamp from just before.
#[derive(Default)]
pub(super) struct FileWatch(Vec<(PathBuf, Option<Stamp>)>);

impl FileWatch {
    /// Whether one of the files has changed. It calls stat on each file and reads none.
    pub(super) fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, seen)| stamp(path) != *seen)
    }

    /// Reads a file as text.
    ///
    /// # Errors
    ///
    /// If it cannot be read: its name and the reason.
    pub(super) fn read_text(&mut self, path: &Path) -> Result<String, String> {
        // The stamp comes first: a write between the two counts as a change.
        self.0.push((path.to_owned(), stamp(path)));
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok()?;
    let times = [
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ];
    Some((meta.dev(), meta.ino(), meta.size(), times))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{FileWatch, fs};

    #[test]
    fn replaced_symlink_is_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for version in ["1", "2"] {
            fs::create_dir(at(version)).expect("created");
            fs::write(at(version).join("tls.crt"), "the same length").expect("written");
        }
        symlink("1", at("..data")).expect("linked");
        symlink("..data/tls.crt", at("tls.crt")).expect("linked");

        let mut files = FileWatch::default();
        files.read_text(&at("tls.crt")).expect("read");
        assert!(!files.have_changed());
        symlink("2", at("..next")).expect("linked");
        fs::rename(at("..next"), at("..data")).expect("swapped");
        assert!(files.have_changed());
    }

    #[test]
    fn created_file_is_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tls.key");
        let mut files = FileWatch::default();
        files.read_text(&path).expect_err("it is not there");
        assert!(!files.have_changed());
        fs::write(&path, "").expect("written");
        assert!(files.have_changed());
    }
}

//! Files that may be replaced while the agent runs, and whether they were.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What of a file changes when it is replaced or written. Links are followed,
/// so where Kubernetes swaps one above it, the inode is another.
type Stamp = (u64, u64, u64, [i64; 4]);

/// The files that were read, each as it was just before.
#[derive(Default)]
pub(super) struct FileWatch(Vec<(PathBuf, Option<Stamp>)>);

impl FileWatch {
    /// Whether one of them is no longer what was read. Asks for the state of
    /// each file and reads none.
    pub(super) fn have_changed(&self) -> bool {
        self.0.iter().any(|(path, seen)| stamp(path) != *seen)
    }

    /// Reads a file as text.
    ///
    /// # Errors
    ///
    /// With the file's name, why it cannot be read.
    pub(super) fn read_text(&mut self, path: &Path) -> Result<String, String> {
        // First the stamp: what is written between the two is seen as a change.
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
    fn a_swapped_link_is_a_change() {
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
    fn a_file_that_comes_is_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tls.key");
        let mut files = FileWatch::default();
        files.read_text(&path).expect_err("it is not there");
        assert!(!files.have_changed());
        fs::write(&path, "").expect("written");
        assert!(files.have_changed());
    }
}

//! Paths of the binaries under test.

use std::env;
use std::path::PathBuf;

/// Path of a binary of this workspace: in the directory `VIRTLENS_BIN_DIR` (the same test
/// executables then run inside a VM), else in `target/PROFILE`, the parent directory of
/// the running test executable's `deps` or the running example's `examples`. Panics if
/// the binary was not built.
pub fn binary(name: &str) -> PathBuf {
    let dir = env::var_os("VIRTLENS_BIN_DIR").map_or_else(profile_dir, PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.is_file(),
        "no {}: build it with `cargo build -p {name}`, or name its directory in VIRTLENS_BIN_DIR",
        path.display()
    );
    path
}

fn profile_dir() -> PathBuf {
    let mut path = env::current_exe().expect("this executable has a path");
    path.pop();
    if path.ends_with("deps") || path.ends_with("examples") {
        path.pop();
    }
    path
}

//! Where the binaries under test are.

use std::env;
use std::path::PathBuf;

/// Path of a binary of this workspace: in the directory `VIRTLENS_BIN_DIR`
/// (the same test executables then run inside a VM), else beside the running
/// test executable or example, whose directory is `target/PROFILE/deps` or
/// `target/PROFILE/examples`. Panics if it was not built.
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

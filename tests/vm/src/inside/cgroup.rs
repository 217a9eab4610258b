//! cgroup v2 groups in the layouts of container runtimes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Mount point of cgroup v2 in the VM.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// The controllers that a kubelet delegates to its pods.
const CONTROLLERS: &str = "+cpu +cpuset +memory +pids";

/// Absolute path of a group that is relative to the root.
pub(crate) fn path(group: &Path) -> PathBuf {
    Path::new(ROOT).join(group)
}

/// Creates a group and enables the controllers for it from the root down.
pub(crate) fn make(group: &Path) -> anyhow::Result<()> {
    let mut above = PathBuf::from(ROOT);
    for part in group {
        write(&above, "cgroup.subtree_control", CONTROLLERS)?;
        above.push(part);
        if !above.exists() {
            fs::create_dir(&above).with_context(|| above.display().to_string())?;
        }
    }
    Ok(())
}

/// Sets `cpu.max`: the CPU time per 100 ms.
pub(crate) fn set_quota(group: &Path, quota_us: Option<u32>) -> anyhow::Result<()> {
    let quota = quota_us.map_or_else(|| "max".to_owned(), |us| us.to_string());
    write(&path(group), "cpu.max", &format!("{quota} 100000"))
}

fn write(dir: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    let path = dir.join(file);
    fs::write(&path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

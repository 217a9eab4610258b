//! BPF programs for comparison, which are not part of the agent.

use std::fs;
use std::path::Path;
use std::process::Command;

use libbpf_rs::{Object, ObjectBuilder, OpenObject};

/// Loads a BPF source of this folder. Panics if the kernel rejects it.
pub(crate) fn load(source: &str) -> Object {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent");
    ObjectBuilder::default()
        .open_memory(&compile(&folder.join(source)))
        .and_then(OpenObject::load)
        .expect("the kernel takes it")
}

/// Compiles a BPF source against the kernel types of `bpf/` to an object file. Panics if
/// clang is missing or fails.
fn compile(source: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let object = folder.path().join("oracle.bpf.o");
    let status = Command::new("clang")
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror",
        ])
        .arg("-D__TARGET_ARCH_x86")
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(
        status
            .expect("clang is installed, as for the build")
            .success()
    );
    fs::read(&object).expect("clang wrote it")
}

/// Runs `work` while the kernel counts the run time of programs; `None` if it cannot count
/// it.
pub(crate) fn with_run_times<T>(work: impl FnOnce() -> T) -> Option<T> {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
    let usual = fs::read(SWITCH).ok()?;
    fs::write(SWITCH, "1").ok()?;
    let result = work();
    fs::write(SWITCH, usual).ok()?;
    Some(result)
}

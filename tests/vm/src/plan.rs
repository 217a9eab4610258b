//! The plan of a boot, passed to the VM as JSON in its initramfs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Path of the plan for `vmtest-inside`.
pub const PLAN_PATH: &str = "/run/plan.json";

/// The work of `vmtest-inside` in one boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The entry of `kernels.toml` for this boot.
    pub kernel: String,
    /// The pods under observation.
    pub pods: Pods,
    /// A guest that a suite may boot in addition; absent with `--bare`.
    pub topology_guest: Option<Guest>,
    /// The suites to run, in this order, after the rig's self-tests.
    pub suites: Vec<Suite>,
    /// Duration of a control run, s: load on the guests without an agent, in a boot
    /// without suites.
    pub control_s: Option<u64>,
    /// `PATH` for the suites, from the environment of the runner.
    pub path: String,
    /// Loader of the BPF programs: `VIRTLENS_LOADER` in the environment of the runner.
    pub loader: Option<String>,
    /// Attach the console to a shell instead of running tests.
    pub shell: bool,
}

/// Whether there are pods under observation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Pods {
    /// Pods from these files, tested before any suite runs.
    Start(Stage),
    /// No pods, but a suite starts guests of its own from these files.
    Files(Stage),
    /// The kernel cannot host a nested KVM guest: reported as a skip.
    Impossible,
    /// Neither pods nor the rig's self-tests were requested.
    Unwanted,
}

/// Files for the pods under observation. All paths are the host's and are read through
/// the shared root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    /// The VMM that runs the nested guests.
    pub qemu: PathBuf,
    /// The vhost-user file system daemon.
    pub virtiofsd: PathBuf,
    /// Kernel image of the nested guest.
    pub guest_kernel: PathBuf,
    /// Initramfs of the nested guest.
    pub guest_initrd: PathBuf,
}

/// A Linux guest that prints the topology it sees on its first serial port, then waits
/// (scripts/topology-init.sh).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Guest {
    /// Its kernel image.
    pub kernel: PathBuf,
    /// Its initramfs.
    pub initrd: PathBuf,
}

/// One test program to run in the VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suite {
    /// Prefix of its tests' names in the report.
    pub name: String,
    /// Path of the program on the host.
    pub program: PathBuf,
    /// Directories of programs of this suite, before those of [`Plan::path`].
    pub paths: Vec<PathBuf>,
    /// Working directory; cargo's tests run in their package's.
    pub directory: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Deadline, s: the program is then killed and counted as failed.
    pub deadline_s: u64,
}

impl Plan {
    /// Reads the plan at `path`.
    ///
    /// # Errors
    /// The file is missing or is not a plan.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}

//! The orders that travel into the VM, as JSON in its initramfs.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where the VM's init leaves the plan for `vmtest-inside`.
pub const PLAN_PATH: &str = "/run/plan.json";

/// Everything `vmtest-inside` is to do in one boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The entry of `kernels.toml` this boot belongs to.
    pub kernel: String,
    /// What to start as the pods under observation.
    pub pods: Pods,
    /// The guest that a suite may boot beside them; absent with `--bare`.
    pub teller: Option<Guest>,
    /// The suites to run, in this order, after the rig's own self-tests.
    pub suites: Vec<Suite>,
    /// For how long to put load on the guests without any agent, s: a control, in a
    /// boot that has no suites.
    pub control_s: Option<u64>,
    /// Where the suites find programs: `PATH` of who started the machine.
    pub path: String,
    /// Who loads the BPF programs: `VIRTLENS_LOADER` of who started the machine.
    pub loader: Option<String>,
    /// Hand the console to a shell instead of running tests.
    pub shell: bool,
}

/// Whether there are pods under observation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Pods {
    /// Made of these files, and tested before any suite runs.
    Start(Stage),
    /// None, but a suite starts guests of its own from these files.
    Files(Stage),
    /// The kernel cannot host a nested KVM guest: reported as a skip.
    Impossible,
    /// Nobody asked for them, nor for the rig's self-tests.
    Unwanted,
}

/// The files that the pods under observation are made of. All paths are the
/// host's and are read through the shared root.
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

/// A Linux that tells on its first serial port where it believes its CPUs to
/// be, then waits (scripts/teller-init.sh).
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
    /// The program, by its path on the host.
    pub program: PathBuf,
    /// Directories of programs of its own, before those of [`Plan::path`].
    pub paths: Vec<PathBuf>,
    /// The directory it runs in; cargo's tests run in their package's.
    pub directory: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// It is killed, and counted as failed, after this many seconds.
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

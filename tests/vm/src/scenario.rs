//! The pods in the VM that the suites measure, and the control of their loads.
//!
//! `vmtest-inside` writes one [`Scenario`] to [`SCENARIO_PATH`] once every pod is up, and
//! serves the loads until the VM ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// Path of the scenario, JSON.
pub const SCENARIO_PATH: &str = "/run/scenario.json";

/// The rig stops a load after this time, so that a suite that died cannot leave the
/// machine busy for the next one.
pub const MAX_LOAD: Duration = Duration::from_mins(1);

/// The rig's message about a guest that does not answer a command.
pub const SILENT_GUEST: &str = "the guest does not answer";

/// The rig's message about a pod of its own with a process that ended: no suite ends one.
pub const DEAD_POD: &str = "a process of the pod ended by itself";

/// Longer than the rig waits for the guest, so that the rig's error arrives.
const PATIENCE: Duration = Duration::from_secs(90);

/// The pods in the VM. A pod lacks the things whose fields are absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scenario {
    /// The entry of `kernels.toml` for the running kernel.
    pub kernel: String,
    /// Mount point of cgroup v2.
    pub cgroup_root: PathBuf,
    /// The unix socket for commands, one per line: `start LOAD` or `stop LOAD`. It
    /// answers `ok` when the guest has confirmed, or `error REASON`.
    pub control: PathBuf,
    /// The pods, by name: `named` has every device and `debug-threads=on`; `plain` has
    /// unnamed threads, no vhost and helpers outside its cgroup.
    pub pods: BTreeMap<String, Pod>,
}

/// One pod: a VMM, its helpers and the cgroups they are in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pod {
    /// The pod's uid in Kubernetes's notation, with dashes.
    pub uid: String,
    /// Process id of the VMM.
    pub vmm_pid: u32,
    /// Threads of the VMM that run vCPUs, by vCPU number.
    pub vcpu_tids: Vec<u32>,
    /// Threads of the VMM that are iothreads.
    pub iothread_tids: Vec<u32>,
    /// Process ids of its virtiofsd: the parent, then the sandboxed child.
    pub virtiofsd_pids: Vec<u32>,
    /// Tid of its vhost-net worker, if it has one.
    pub vhost_tid: Option<u32>,
    /// Tid of its vhost-vsock worker; the device is idle.
    pub vsock_tid: Option<u32>,
    /// The network interface of its vhost-net device.
    pub tap: Option<String>,
    /// The pod's cgroup, relative to the cgroup root; it has the quota.
    pub pod_cgroup: PathBuf,
    /// The cgroup of the VMM.
    pub vmm_cgroup: PathBuf,
    /// The cgroup of the virtiofsd.
    pub virtiofsd_cgroup: PathBuf,
    /// The VMM's QMP socket, for balloon and pause.
    pub qmp: PathBuf,
    /// The loads that [`Scenario::start`] accepts for this pod.
    pub loads: Vec<String>,
}

impl Pod {
    /// Tids of all its vhost workers.
    pub fn vhost_tids(&self) -> Vec<u32> {
        self.vhost_tid.into_iter().chain(self.vsock_tid).collect()
    }
}

impl Scenario {
    /// Reads the scenario of this VM.
    ///
    /// # Errors
    /// There is no scenario: this is not a test VM, or it could not start.
    pub fn read() -> anyhow::Result<Self> {
        let text = std::fs::read(SCENARIO_PATH)
            .with_context(|| format!("{SCENARIO_PATH}: not inside a test VM of tests/vm"))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Starts a load of the `named` pod and waits until it runs. It ends with
    /// [`Scenario::stop`] or after [`MAX_LOAD`].
    ///
    /// # Errors
    /// The load is unknown or the guest did not answer.
    pub fn start(&self, load: &str) -> anyhow::Result<()> {
        self.order(&format!("start {load}"))
    }

    /// Stops a load and waits until the guest has confirmed.
    ///
    /// # Errors
    /// The load is unknown or the guest did not answer.
    pub fn stop(&self, load: &str) -> anyhow::Result<()> {
        self.order(&format!("stop {load}"))
    }

    /// Sends one command unchanged.
    ///
    /// # Errors
    /// As for [`Scenario::start`].
    pub fn order(&self, text: &str) -> anyhow::Result<()> {
        let mut stream = UnixStream::connect(&self.control)
            .with_context(|| format!("{}: the scenario is gone", self.control.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{text}")?;
        let mut answer = String::new();
        BufReader::new(stream)
            .read_line(&mut answer)
            .context("the scenario did not answer")?;
        match answer.trim() {
            "ok" => Ok(()),
            other => bail!("{text}: {other}"),
        }
    }
}

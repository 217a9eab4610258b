//! What the collector takes of the configuration.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use virtlens_host::HostRoot;
use virtlens_model::judge::findings::Bounds;
use virtlens_probe::loader::Loader;

use crate::config::{Config, Settings};
use crate::kube;

/// What a collector is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the host's /proc and /sys are.
    pub root: PathBuf,
    /// How long a VM that is gone keeps its final values.
    pub linger: Duration,
    /// The node's name, if it is not the host's.
    pub node_name: Option<String>,
    /// Tell in each reading on which pCPUs each vCPU ran.
    pub pcpu_series: bool,
    /// From where on something is a finding.
    pub bounds: Bounds,
    /// Where names of pods come from.
    pub names: Option<virtlens_kube::Source>,
    /// Who loads the BPF programs.
    pub loader: Loader,
    /// Go on with what an agent left in the kernel, and leave it to the next one.
    pub pin: bool,
}

impl Options {
    /// All that `config` says, with names of pods from where it says.
    ///
    /// # Errors
    ///
    /// When that is not enough to ask anybody.
    pub fn named(config: &Config) -> anyhow::Result<Self> {
        let plain = Self::from(config);
        let node = match &plain.node_name {
            Some(name) => name.clone(),
            None => {
                virtlens_host::node(&HostRoot::new(&plain.root))
                    .context("cannot read what machine this is")?
                    .hostname
            }
        };
        let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        let names = kube::source(config, &node, in_pod)?;
        Ok(Self { names, ..plain })
    }
}

impl From<&Config> for Options {
    fn from(config: &Config) -> Self {
        Self {
            root: config.root.clone(),
            linger: config.linger,
            node_name: config.node_name.clone(),
            pcpu_series: config.pcpu_series,
            bounds: config.bounds,
            names: None,
            loader: config.loader,
            // The commands that look for a moment disturb no agent.
            pin: false,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Config::from(Settings::default()))
    }
}

//! The part of the configuration that the collector uses.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use virtlens_host::HostRoot;
use virtlens_model::judge::findings::Bounds;
use virtlens_probe::loader::Loader;
use virtlens_probe::plan::Feature;

use crate::config::{Config, Settings};
use crate::kube;

/// Options of a collector.
#[derive(Debug, Clone)]
pub struct Options {
    /// Root of the host's /proc and /sys.
    pub root: PathBuf,
    /// Time for which a VM that is gone keeps its final values.
    pub linger: Duration,
    /// Name of the node, if it differs from the host's name.
    pub node_name: Option<String>,
    /// Report the CPU time of each vCPU on each pCPU.
    pub pcpu_series: bool,
    /// Read histograms of the halts of vCPUs.
    pub halt_series: bool,
    /// Thresholds of findings.
    pub bounds: Bounds,
    /// Source of pod names.
    pub names: Option<virtlens_kube::Source>,
    /// Loader of the BPF programs.
    pub loader: Loader,
    /// The features to load, always with [`Feature::TaskPass`]. A command loads only those
    /// whose values it shows: others have neither values nor a row among the sources.
    pub features: &'static [Feature],
    /// Attach programs to hooks when the first VM is found, and detach them once there has
    /// been no VM for this long. `None`: attach them at once.
    pub detach_after: Option<Duration>,
    /// Take over what an agent left in the kernel, and leave it for the next one.
    pub pin: bool,
}

impl Options {
    /// The options from `config`, including the source of pod names.
    ///
    /// # Errors
    ///
    /// If the configuration of that source is incomplete.
    pub fn named(config: &Config) -> anyhow::Result<Self> {
        let plain = Self::from(config);
        let node = match &plain.node_name {
            Some(name) => name.clone(),
            None => {
                virtlens_host::node(&HostRoot::new(&plain.root))
                    .context("cannot read the node's name and CPUs")?
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
            pcpu_series: config.metrics.needs_residency(),
            halt_series: config.metrics.needs_halts(),
            bounds: config.bounds,
            names: None,
            loader: config.loader,
            features: &Feature::ALL,
            // One-shot commands read twice at most, so they attach before the first reading.
            detach_after: None,
            // One-shot commands must not disturb an agent.
            pin: false,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::from(&Config::from(Settings::default()))
    }
}

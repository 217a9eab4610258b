//! Source of the facts: BPF, or /proc if BPF is not available.

use rustc_hash::FxHashSet;
use virtlens_host::{CgroupVersion, Cgroups, HostRoot, ProcSource};
use virtlens_model::facts::{Facts, WatchedCgroup};
use virtlens_model::vocab::topology::host::HostTopology;
use virtlens_model::vocab::{CgroupId, Owner};
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::Pins;
use virtlens_probe::plan::Plan;
use virtlens_probe::source::TaskPass;

/// Source of the facts.
pub(crate) enum Backend {
    /// The second field is `None` if state is not handed over to the next agent, and
    /// otherwise contains the reason if it cannot be.
    Bpf(Box<TaskPass>, Option<Result<(), String>>),
    /// With the reason that BPF is not available.
    Proc(Box<ProcSource>, String),
    Nothing(String),
}

impl Backend {
    /// Opens the best source that this host supports: BPF as planned, if possible. With
    /// `pins` it takes over the pinned state.
    pub(crate) fn open(
        root: &HostRoot,
        loader: Loader,
        plan: &Plan,
        cgroups: &Result<Cgroups, String>,
        version: CgroupVersion,
        pins: Option<Result<Pins, String>>,
    ) -> Self {
        let (pins, mut pinned) = match pins {
            Some(Ok(pins)) => (Some(pins), Some(Ok(()))),
            Some(Err(why)) => (None, Some(Err(why))),
            None => (None, None),
        };
        let is_v1 = version == CgroupVersion::V1;
        let load = |pins| TaskPass::load(root.path(), loader, plan.clone(), is_v1, pins);
        let loaded = match load(pins) {
            Err(error @ virtlens_probe::Error::Pin { .. }) => {
                pinned = Some(Err(error.to_string()));
                load(None)
            }
            loaded => loaded,
        };
        let why = match loaded {
            Ok(pass) => return Self::Bpf(Box::new(pass), pinned),
            Err(error) => error.to_string(),
        };
        match cgroups {
            Ok(cgroups) => Self::Proc(
                Box::new(ProcSource::new(root.clone(), cgroups.clone())),
                why,
            ),
            Err(_) => Self::Nothing(format!(
                "{why}; the /proc source requires cgroups, which are off"
            )),
        }
    }

    /// Reads the facts, with the residency of vCPUs if it is wanted and available.
    pub(crate) fn read(&mut self, with_residency: bool) -> anyhow::Result<Facts> {
        match self {
            Self::Bpf(pass, _) => {
                if with_residency {
                    pass.want_residency();
                }
                Ok(pass.read()?)
            }
            Self::Proc(proc, _) => Ok(proc.read()?),
            Self::Nothing(_) => Ok(Facts::default()),
        }
    }

    pub(crate) fn set_host(&mut self, host: &HostTopology) -> anyhow::Result<()> {
        match self {
            Self::Bpf(pass, _) => Ok(pass.set_host(host)?),
            Self::Proc(..) | Self::Nothing(_) => Ok(()),
        }
    }

    /// Sets the watched cgroups. Returns whether that affects readings.
    pub(crate) fn watch(&mut self, watched: &FxHashSet<WatchedCgroup>) -> anyhow::Result<bool> {
        match self {
            Self::Bpf(pass, _) => Ok(pass.watch(watched)?),
            Self::Proc(proc, _) => {
                let watched: Vec<WatchedCgroup> = watched.iter().copied().collect();
                Ok(proc.watch(&watched))
            }
            Self::Nothing(_) => Ok(false),
        }
    }

    /// Sets the cgroups that can have a limit. Returns whether that affects readings.
    pub(crate) fn set_levels(&mut self, levels: FxHashSet<CgroupId>) -> anyhow::Result<bool> {
        match self {
            Self::Bpf(pass, _) => Ok(pass.set_levels(levels)?),
            Self::Proc(..) | Self::Nothing(_) => Ok(false),
        }
    }

    pub(crate) fn forget(&mut self, gone: &FxHashSet<Owner>) -> anyhow::Result<()> {
        match self {
            Self::Bpf(pass, _) => pass.forget(gone)?,
            Self::Proc(proc, _) => proc.forget(gone),
            Self::Nothing(_) => {}
        }
        Ok(())
    }
}

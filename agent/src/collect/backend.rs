//! Where the facts come from: BPF, or where it cannot be had /proc.

use rustc_hash::FxHashSet;
use virtlens_host::{CgroupVersion, Cgroups, HostRoot, ProcSource};
use virtlens_model::facts::{Facts, WatchedCgroup};
use virtlens_model::vocab::topology::host::HostTopology;
use virtlens_model::vocab::{CgroupId, Owner};
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::Pins;
use virtlens_probe::plan;
use virtlens_probe::source::TaskPass;

/// Where the facts come from.
pub(crate) enum Backend {
    /// With why nothing can be left to the next agent, if it is to be.
    Bpf(Box<TaskPass>, Option<Result<(), String>>),
    /// With the reason why there is no BPF.
    Proc(Box<ProcSource>, String),
    Nothing(String),
}

impl Backend {
    /// The best that this host allows; with `pins` it goes on with what is there.
    pub(crate) fn open(
        root: &HostRoot,
        loader: Loader,
        kernel: &KernelFacts,
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
        let load = |pins| TaskPass::load(root.path(), loader, plan::plan(kernel), is_v1, pins);
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
            Err(_) => Self::Nothing(format!("{why}; and /proc needs cgroups, which are off too")),
        }
    }

    /// With where vCPUs ran, if it is wanted and can be told.
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

    /// Sets what is watched. True if that changes what a reading sees.
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

    /// Sets which cgroups can have a limit. True if that changes what a reading sees.
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

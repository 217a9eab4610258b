//! The collector: combines a source and the fleet into snapshots.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_host::{CgroupVersion, Cgroups, HostRoot};
use virtlens_model::fleet::Fleet;
use virtlens_model::judge::findings::{Bounds, Watch};
use virtlens_model::snapshot::{API_VERSION, Node, Snapshot};
use virtlens_model::vocab::{Owner, VmKey};
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::{Pins, Refusal};
use virtlens_probe::plan::{Feature, plan};
use virtlens_probe::source::TaskPass;

use crate::collect::backend::Backend;
use crate::collect::failing::Failing;
use crate::collect::handover::pinned_under;
use crate::collect::offers::CheckRow;
use crate::collect::options::Options;
use crate::collect::placement::Placement;
use crate::kube::PodNames;

/// Interval at which the open files of VMs are searched for vCPUs and vhost workers that
/// their threads do not show, in addition to the search when a VM is first seen.
pub(super) const SEARCH_FILES_EVERY: Duration = Duration::from_mins(1);

/// Reads the host on request.
pub struct Collector {
    pub(super) root: HostRoot,
    pub(super) node: Node,
    pub(super) cgroups: Result<Cgroups, String>,
    pub(super) kernel: KernelFacts,
    pub(super) loader: Loader,
    /// The features to load.
    features: &'static [Feature],
    pub(super) backend: Backend,
    pub(super) fleet: Fleet,
    /// Whether the state of the previous agent was taken over.
    pub(super) has_taken_over: bool,
    /// Owners that are gone, until the backend has dropped their state.
    pub(super) gone: FxHashSet<Owner>,
    pub(super) names: Option<PodNames>,
    pub(super) placement: Placement,
    /// Whether the backend lacks the last topology of the host.
    pub(super) is_host_new: bool,
    pub(super) watch: Watch,
    /// The fleet's change count for which the backend watches cgroups.
    pub(super) watched_as_of: Option<u64>,
    pub(super) pcpu_series: bool,
    pub(super) started: Instant,
    pub(super) files_searched: Option<Instant>,
    /// The snapshot of the last successful reading: its VMs are repeated when a single
    /// reading fails.
    pub(super) fallback: Option<Arc<Snapshot>>,
    /// Number of features that were left out as of the last reading.
    left_out: usize,
    pub(super) failing: Failing,
    /// The steps after a reading: saving state for the next agent, and dropping state.
    pub(super) upkeep: Failing,
    /// Number of failures to find a VM's RAM.
    pub(super) ram_unread: u64,
    /// Number of failures to read a VM's process.
    pub(super) process_unread: u64,
    /// Number of such failures by process, for processes that are not admitted yet.
    pub(super) unread_in_row: FxHashMap<VmKey, u32>,
    pub(super) read_ns: Option<u64>,
    /// Time of the last successful reading, ns since the start.
    pub(super) at_ns: Option<u64>,
}

impl Collector {
    /// Prepares to read the host: loads the BPF programs, or falls back to /proc.
    ///
    /// # Errors
    /// If /proc or /sys cannot be read at all, or another agent runs.
    pub fn open(options: &Options) -> anyhow::Result<Self> {
        let names = options.names.clone().map(PodNames::start).transpose()?;
        let root = HostRoot::new(&options.root);
        let facts = virtlens_host::node(&root).context("cannot read the node's name and CPUs")?;
        let cgroups = Cgroups::find(&root).map_err(|error| error.to_string());
        let version = virtlens_host::cgroup_version(&root);
        let kernel = KernelFacts::probe(&options.root).seen_by(options.loader);
        let pins = options.pin.then(|| take_pins(&options.root)).transpose()?;
        let plan = plan(&kernel).limited_to(options.features);
        let plan = plan.detached_after(options.detach_after);
        let mut backend = Backend::open(&root, options.loader, &plan, &cgroups, version, pins);
        if let (Backend::Bpf(pass, _), true) = (&mut backend, options.halt_series) {
            pass.want_halts();
        }
        names.iter().for_each(PodNames::settle);
        Ok(Self {
            node: Node {
                name: options.node_name.clone().unwrap_or(facts.hostname),
                kernel: facts.kernel,
                cpus: u32::try_from(facts.online.len()).unwrap_or(u32::MAX),
                cgroup: if version == CgroupVersion::V1 {
                    "v1"
                } else {
                    "v2"
                },
            },
            root,
            cgroups,
            kernel,
            loader: options.loader,
            features: options.features,
            backend,
            fleet: Fleet::new(u64::try_from(options.linger.as_nanos()).unwrap_or(u64::MAX)),
            has_taken_over: false,
            gone: FxHashSet::default(),
            names,
            placement: Placement::default(),
            is_host_new: false,
            watch: Watch::new(options.bounds),
            watched_as_of: None,
            pcpu_series: options.pcpu_series,
            started: Instant::now(),
            files_searched: None,
            fallback: None,
            left_out: 0,
            failing: Failing::default(),
            upkeep: Failing::default(),
            ram_unread: 0,
            process_unread: 0,
            unread_in_row: FxHashMap::default(),
            read_ns: None,
            at_ns: None,
        })
    }

    /// Reads the host. If a source fails, the snapshot reports it: it contains the VMs of
    /// the last successful reading, and after some failures in a row none.
    pub fn collect(&mut self) -> Arc<Snapshot> {
        let began = Instant::now();
        let is_first = self.at_ns.is_none();
        let (vms, is_judged) = match self.read() {
            Ok(read) => {
                self.failing.worked();
                read
            }
            Err(error) => {
                if let Some(reason) = self.failing.failed(&error) {
                    tracing::warn!(error = %reason, "cannot read the host");
                }
                let fallback = self.fallback.as_ref();
                let last = fallback.filter(|_| self.failing.shows_last());
                (last.map_or_else(Vec::new, |last| last.vms.clone()), false)
            }
        };
        self.read_ns = Some(nanos(began.elapsed()));
        self.log_left_out(is_first);
        let programs = self.bpf().map_or_else(Vec::new, TaskPass::programs);
        let snapshot = Arc::new(Snapshot {
            api_version: API_VERSION,
            kind: "Snapshot",
            time: jiff::Timestamp::now().to_string(),
            clock_ns: self.at_ns.unwrap_or(0),
            reading_age_ns: self.reading_age_ns(),
            node: self.node.clone(),
            host: Arc::clone(self.placement.host()),
            sources: self.sources(),
            dropped: self.dropped(&programs),
            maps: self.bpf().map_or_else(Vec::new, TaskPass::maps),
            programs,
            vms,
        });
        if is_judged {
            self.watch.begin(&snapshot);
        }
        if !self.failing.is_failing() {
            let former = self.fallback.replace(Arc::clone(&snapshot));
            if let Some(former) = former.and_then(Arc::into_inner) {
                self.fleet.recycle(former.vms);
            }
        }
        snapshot
    }

    /// Logs features that were left out since the last reading: they are attached for the
    /// first VM. Those of the start are logged with the start.
    fn log_left_out(&mut self, is_first: bool) {
        let Some(pass) = self.bpf() else {
            return;
        };
        let left_out = &pass.plan().left_out;
        let known = if is_first {
            left_out.len()
        } else {
            self.left_out
        };
        let new = left_out.len().saturating_sub(known);
        for (feature, reason) in left_out.iter().rev().take(new) {
            tracing::warn!(sources = feature.name(), reason, "off");
        }
        self.left_out = left_out.len();
    }

    /// Detaches the programs from their hooks if no VM is shown, as `virtlens run` does.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn rest(&mut self) -> anyhow::Result<()> {
        match &mut self.backend {
            Backend::Bpf(pass, _) if self.fleet.is_empty() => Ok(pass.detach_all()?),
            _ => Ok(()),
        }
    }

    /// Reads the host and judges the placement and the findings of its VMs, over the time
    /// since the last judgement.
    pub fn collect_judged(&mut self) -> Arc<Snapshot> {
        self.placement.hasten();
        self.collect()
    }

    /// The kernel's features for BPF programs.
    pub(crate) fn kernel(&self) -> &KernelFacts {
        &self.kernel
    }

    /// The loader of BPF programs.
    pub(crate) fn loader(&self) -> Loader {
        self.loader
    }

    /// The features to load, in the order in which they are shown.
    pub(super) fn features(&self) -> impl Iterator<Item = Feature> {
        let wanted = self.features;
        Feature::ALL.into_iter().filter(|one| wanted.contains(one))
    }

    /// The host's cgroups, if found.
    pub(crate) fn cgroups(&self) -> Option<&Cgroups> {
        self.cgroups.as_ref().ok()
    }

    /// Root of the host's /proc and /sys.
    pub(crate) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// The kernel's features, and the sources that use them.
    pub fn check(&self) -> Vec<CheckRow> {
        crate::collect::offers::rows(&self.kernel, self.loader, &self.sources())
    }

    /// The thresholds of findings.
    pub fn bounds(&self) -> &Bounds {
        self.watch.bounds()
    }

    /// Age of the VMs' values, ns: 0 unless the reading failed.
    pub(super) fn reading_age_ns(&self) -> Option<u64> {
        let at_ns = self.at_ns?;
        let age_ns = || nanos(self.started.elapsed()).saturating_sub(at_ns);
        Some(if self.failing.is_failing() {
            age_ns()
        } else {
            0
        })
    }

    pub(super) fn bpf(&self) -> Option<&TaskPass> {
        if let Backend::Bpf(pass, _) = &self.backend {
            Some(pass)
        } else {
            None
        }
    }
}

/// Takes the previous agent's pinned objects; the inner `Err` means that they cannot be
/// stored on this host.
fn take_pins(root: &Path) -> anyhow::Result<Result<Pins, String>> {
    match Pins::take(&pinned_under(root)) {
        Ok(pins) => Ok(Ok(pins)),
        Err(Refusal::Unavailable(why)) => Ok(Err(why)),
        Err(busy @ Refusal::Busy(_)) => Err(busy.into()),
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! Reads the host whenever it is asked to: source, fleet, snapshot.
//!
//! ```text
//! source.read ─► strangers? ask /proc who they are, admit ─► cgroups to watch
//!      ▲                                                     changed? ──┐
//!      └──────────────────── again, with them ◄─────────────────────────┘
//! ```

mod health;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use virtlens_host::{CgroupVersion, Cgroups, HostRoot};
use virtlens_model::facts::{Facts, Owner, ProcessFact, VmKey};
use virtlens_model::finding::{Bounds, Watch};
use virtlens_model::fleet::Fleet;
use virtlens_model::snapshot::{API_VERSION, Node, Snapshot, Vm};
use virtlens_model::topology::host::HostTopology;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::loader::Loader;
use virtlens_probe::pins::{Pins, Refusal};
use virtlens_probe::source::TaskPass;

use crate::backend::Backend;
use crate::check::pinned_under;
use crate::handover;
use crate::metadata::PodNames;
pub use crate::offers::CheckRow;
pub use crate::options::Options;
use crate::placement::Placement;

/// How often the open files of the whole host are walked for VMs whose vCPUs
/// do not run, beside the walk as one is met. It costs some milliseconds on a full node.
const FILE_PASS_EVERY: Duration = Duration::from_mins(1);

/// New VMs change what is watched, and what is watched shows more threads:
/// twice settles it, once more where VMs start all the time.
const ROUNDS: usize = 3;

/// Reads the host whenever it is asked to.
pub struct Collector {
    root: HostRoot,
    node: Node,
    cgroups: Result<Cgroups, String>,
    kernel: KernelFacts,
    loader: Loader,
    backend: Backend,
    fleet: Fleet,
    /// What the agent before kept is read.
    has_taken_over: bool,
    names: Option<PodNames>,
    placement: Placement,
    watch: Watch,
    /// The changes of the fleet that the backend was last told of.
    told_of: Option<u64>,
    pcpu_series: bool,
    started: Instant,
    files_walked: Option<Instant>,
    /// The last snapshot: its VMs stay where a reading fails.
    last: Option<Arc<Snapshot>>,
    /// Why the last reading failed; empty if it did not.
    failure: String,
    failures: u64,
    /// How often a VM's RAM could not be found.
    ram_unread: u64,
    /// How often a VM's process could not be asked what it is.
    process_unread: u64,
    read_ns: Option<u64>,
    /// When the last reading that worked was taken, ns since the start.
    at_ns: u64,
}

impl Collector {
    /// Gets ready to read the host: loads the BPF programs, or else falls back
    /// to /proc.
    ///
    /// # Errors
    /// When /proc or /sys cannot be read at all, or another agent runs.
    pub fn open(options: &Options) -> anyhow::Result<Self> {
        let names = options.names.clone().map(PodNames::start).transpose()?;
        let root = HostRoot::new(&options.root);
        let facts = virtlens_host::node(&root).context("cannot read what machine this is")?;
        let cgroups = Cgroups::find(&root).map_err(|error| error.to_string());
        let version = virtlens_host::cgroup_version(&root);
        let kernel = KernelFacts::probe(&options.root);
        let pins = options.pin.then(|| take_pins(&options.root)).transpose()?;
        let backend = Backend::open(&root, options.loader, &kernel, &cgroups, version, pins);
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
            backend,
            fleet: Fleet::new(u64::try_from(options.linger.as_nanos()).unwrap_or(u64::MAX)),
            has_taken_over: false,
            names,
            placement: Placement::default(),
            watch: Watch::new(options.bounds),
            told_of: None,
            pcpu_series: options.pcpu_series,
            started: Instant::now(),
            files_walked: None,
            last: None,
            failure: String::new(),
            failures: 0,
            ram_unread: 0,
            process_unread: 0,
            read_ns: None,
            at_ns: 0,
        })
    }

    /// Reads the host. A source that fails is data in the snapshot: the VMs
    /// are then those of the last reading that worked.
    pub fn collect(&mut self) -> Arc<Snapshot> {
        let began = Instant::now();
        let (vms, is_judged) = match self.read() {
            Ok(read) => {
                self.failure.clear();
                read
            }
            Err(error) => {
                self.failures += 1;
                let text = format!("{error:#}");
                if self.failure != text {
                    tracing::warn!(error = %text, "reading the host failed; the last values stay");
                }
                self.failure = text;
                let last = self.last.as_ref();
                (last.map_or_else(Vec::new, |last| last.vms.clone()), false)
            }
        };
        self.read_ns = Some(nanos(began.elapsed()));
        let programs = self.bpf().map_or_else(Vec::new, TaskPass::programs);
        let snapshot = Arc::new(Snapshot {
            api_version: API_VERSION,
            kind: "Snapshot",
            time: jiff::Timestamp::now().to_string(),
            clock_ns: self.at_ns,
            node: self.node.clone(),
            sources: self.sources(),
            dropped: self.dropped(&programs),
            maps: self.bpf().map_or_else(Vec::new, TaskPass::maps),
            programs,
            vms,
        });
        if is_judged {
            self.watch.begin(&snapshot);
        }
        let before = self.last.replace(Arc::clone(&snapshot));
        if let Some(Ok(before)) = before.map(Arc::try_unwrap) {
            self.fleet.recycle(before.vms);
        }
        snapshot
    }

    /// Reads the host and judges its VMs: where they sit, and what is wrong, by
    /// what they did since the last judgement.
    pub fn collect_judged(&mut self) -> Arc<Snapshot> {
        self.placement.hasten();
        self.collect()
    }

    /// Where the host's CPUs are, as last read.
    pub fn host(&self) -> &HostTopology {
        self.placement.host()
    }

    /// What this kernel offers to programs.
    pub(crate) fn kernel(&self) -> &KernelFacts {
        &self.kernel
    }

    /// Who loads programs.
    pub(crate) fn loader(&self) -> Loader {
        self.loader
    }

    /// The host's cgroups, where they can be found.
    pub(crate) fn cgroups(&self) -> Option<&Cgroups> {
        self.cgroups.as_ref().ok()
    }

    /// Where the host's /proc and /sys are.
    pub(crate) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// What this kernel offers, and what is made of it.
    pub fn check(&self) -> Vec<CheckRow> {
        crate::offers::rows(&self.kernel, self.loader, &self.sources())
    }

    /// The thresholds of findings.
    pub fn bounds(&self) -> &Bounds {
        self.watch.bounds()
    }

    /// Reads the VMs; true if they were judged as well.
    fn read(&mut self) -> anyhow::Result<(Vec<Vm>, bool)> {
        let walk = self
            .files_walked
            .is_none_or(|last| last.elapsed() >= FILE_PASS_EVERY);
        if let (Backend::Bpf(pass, _), true) = (&mut self.backend, walk) {
            self.files_walked = Some(Instant::now());
            if let Err(error) = pass.find_paused() {
                tracing::debug!(%error, "the pass over open files failed");
            }
        }
        if self.placement.look(&self.root) {
            let host = self.placement.host();
            self.node.cpus = u32::try_from(host.online().len()).unwrap_or(u32::MAX);
            self.backend.set_host(host)?;
            self.placement.hasten();
        }
        let due = self.placement.is_due(nanos(self.started.elapsed()));
        let with_residency = due || self.pcpu_series;
        let mut at_ns = nanos(self.started.elapsed());
        let mut facts = self.backend.read(with_residency)?;
        if let Backend::Bpf(pass, _) = &mut self.backend
            && !std::mem::replace(&mut self.has_taken_over, true)
        {
            handover::take(pass, &mut self.fleet, &facts, at_ns)?;
        }
        for _ in 0..ROUNDS {
            for vm in self.fleet.strangers(&facts) {
                let process = self.who_is(vm, &facts);
                self.fleet.admit(vm, &process, &facts);
            }
            let cgroups = self.cgroups.as_ref().ok();
            self.fleet.follow(&facts, |path| cgroups?.id_of(path));
            let changes = Some(self.fleet.changes());
            if self.told_of == changes {
                break;
            }
            self.backend.set_levels(self.fleet.levels())?;
            let sees_more = self.backend.watch(&self.fleet.watched())?;
            self.told_of = changes;
            if !sees_more {
                break;
            }
            at_ns = nanos(self.started.elapsed());
            facts = self.backend.read(with_residency)?;
        }
        if let Backend::Bpf(pass, _) = &mut self.backend {
            self.ram_unread += crate::memory::follow(pass, &self.fleet, &self.root, &mut facts);
        }
        if let Some(names) = &mut self.names {
            names.tell(&mut self.fleet);
        }
        let (mut vms, mut gone) = self.fleet.account(&facts, at_ns);
        if let Backend::Bpf(pass, _) = &mut self.backend {
            // Before those are forgotten whose counters another VM carries on.
            handover::keep(pass, &mut self.fleet)?;
            pass.recycle(facts);
            let left = pass.left();
            if !left.is_empty() {
                gone.extend(left.difference(&self.fleet.owners()));
            }
        }
        self.backend.forget(&gone)?;
        if due {
            let cgroups = self.cgroups.as_ref().ok();
            self.placement.judge(&vms, cgroups, at_ns);
        }
        self.placement.show(&mut vms);
        crate::stray::show_limits(&mut vms, self.cgroups.as_ref().ok());
        if due {
            self.watch.judge(&vms, at_ns);
        }
        self.watch.show(&mut vms);
        if due && !self.pcpu_series {
            let vcpus = vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
            vcpus.for_each(|vcpu| vcpu.residency_ns.clear());
        }
        self.at_ns = at_ns;
        Ok((vms, due))
    }

    /// What a VM's process said of itself; where it is gone already, what is
    /// known from its threads.
    fn who_is(&mut self, vm: VmKey, facts: &Facts) -> ProcessFact {
        virtlens_host::process(&self.root, vm.tgid).unwrap_or_else(|error| {
            self.process_unread += 1;
            tracing::debug!(pid = vm.tgid, %error, "a VM's process cannot be asked");
            let own = facts
                .threads
                .iter()
                .find(|thread| thread.owner == Owner::Vm(vm));
            let comm = own.map(|thread| thread.process_comm).unwrap_or_default();
            ProcessFact {
                comm,
                ..ProcessFact::default()
            }
        })
    }

    fn bpf(&self) -> Option<&TaskPass> {
        if let Backend::Bpf(pass, _) = &self.backend {
            Some(pass)
        } else {
            None
        }
    }
}

/// What the agent before left; `Err` within where there is no place for that.
fn take_pins(root: &Path) -> anyhow::Result<Result<Pins, String>> {
    match Pins::take(&pinned_under(root)) {
        Ok(pins) => Ok(Ok(pins)),
        Err(Refusal::Unavailable(why)) => Ok(Err(why)),
        Err(busy @ Refusal::Busy(_)) => Err(busy.into()),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! Searches the open files of VMs for what a task pass does not show: the threads of vCPUs
//! in user space, vCPUs whose threads have exited, and the devices of vhost workers.
//!
//! The task pass finds each VM by its address space and counts its vCPUs there, so only a VM
//! with fewer vCPU threads, or with a new vhost worker, is searched.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use virtlens_model::facts::{Facts, ThreadKind};
use virtlens_model::vocab::{Owner, ThreadKey, VhostDevice, VmKey};

use super::TaskPass;
use super::passes::read_each;
use super::vhost::Vhost;
use crate::Error;
use crate::decode::{OpenFiles, OpenedByVm};
use crate::load::Programs;

/// The program of the pass over open files.
pub(super) const PROGRAM: &str = "sample_files";

/// The searches, and their results.
pub(super) struct Search {
    /// The pass over the files of all processes; `None` if the plan has none.
    all: Option<OwnedFd>,
    /// Whether the kernel can pass over the files of one process.
    by_process: bool,
    /// Whether the next reading also searches VMs that are known.
    pub(super) is_due: bool,
    /// Whether the next passes visit all threads of the host, to find single threads in
    /// cgroups of pods: see `bpf/strays.bpf.h`.
    pub(super) visits_all: bool,
    found: FxHashMap<VmKey, OpenedByVm>,
    /// What was found, as [`Facts`] has it.
    has_run: Arc<FxHashMap<VmKey, Vec<u32>>>,
    vhost_devices: Arc<FxHashMap<ThreadKey, VhostDevice>>,
    vhost: Vhost,
    /// Failed searches.
    pub(super) errors: u64,
}

impl Search {
    /// `root` contains /sys.
    pub(super) fn new(programs: &Programs, all: Option<OwnedFd>, root: &Path) -> Self {
        let own = std::process::id();
        Self {
            by_process: all.is_some() && programs.attach_to(PROGRAM, own).is_ok(),
            all,
            is_due: false,
            visits_all: true,
            found: FxHashMap::default(),
            has_run: Arc::default(),
            vhost_devices: Arc::default(),
            vhost: Vhost::new(root),
            errors: 0,
        }
    }

    /// Returns the VMs whose open files may show more than the threads in `facts`.
    pub(super) fn unsettled(&self, facts: &Facts) -> FxHashSet<VmKey> {
        let mut vcpus: FxHashMap<VmKey, usize> = FxHashMap::default();
        let mut unsettled = FxHashSet::default();
        for run in facts.threads.runs() {
            let Owner::Vm(vm) = run.owner else {
                continue;
            };
            let of_run = run.threads.iter().filter(|thread| thread.vcpu.is_some());
            *vcpus.entry(vm).or_default() += of_run.count();
            let is_new_worker = |tid, start_ns| {
                let worker = ThreadKey { start_ns, tid };
                !self.vhost_devices.contains_key(&worker)
            };
            if run.threads.iter().any(|thread| {
                matches!(thread.kind, ThreadKind::Kthread | ThreadKind::UserWorker)
                    && thread.comm.0.starts_with(b"vhost-")
                    && is_new_worker(thread.tid, thread.start_ns)
            }) {
                unsettled.insert(vm);
            }
        }
        let has_more = facts.vms.iter().filter(|fact| {
            let threads = vcpus.get(&fact.vm).copied().unwrap_or(0);
            fact.vcpus as usize > threads
        });
        unsettled.extend(has_more.map(|fact| fact.vm));
        unsettled
    }

    /// Adds the results to `facts`.
    pub(super) fn add_to(&self, facts: &mut Facts) {
        facts.has_run = Arc::clone(&self.has_run);
        facts.vhost_devices = Arc::clone(&self.vhost_devices);
    }

    pub(super) fn forget(&mut self, gone: &FxHashSet<VmKey>) {
        let before = self.found.len();
        self.found.retain(|vm, _| !gone.contains(vm));
        if self.found.len() < before {
            self.share();
        }
    }

    /// Replaces the results for these VMs.
    fn keep(&mut self, vms: &FxHashSet<VmKey>, found: OpenFiles) {
        self.found.retain(|vm, _| !vms.contains(vm));
        let found = found.into_vms().into_iter();
        self.found.extend(found.filter(|(vm, _)| vms.contains(vm)));
        self.share();
    }

    fn share(&mut self) {
        let found = self.found.iter();
        let has_run = found.map(|(vm, one)| (*vm, one.ran().map(|(id, _)| id).collect()));
        self.has_run = Arc::new(has_run.collect());
        let devices = self.found.values().flat_map(|one| &one.vhost_devices);
        let devices = devices.map(|(worker, device)| (*worker, *device));
        self.vhost_devices = Arc::new(devices.collect());
    }
}

impl TaskPass {
    /// Makes the next reading search the open files of all VMs whose threads do not show
    /// everything. Every reading searches those of new VMs.
    pub fn want_search(&mut self) {
        self.search.is_due = true;
    }

    /// Searches the open files of these VMs. Returns whether `facts` lacks a vCPU thread that
    /// was found: the next pass shows it.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::Record`] or [`Error::Map`].
    pub(super) fn search(&mut self, vms: &FxHashSet<VmKey>, facts: &Facts) -> Result<bool, Error> {
        if vms.is_empty() || self.search.all.is_none() {
            return Ok(false);
        }
        let found = self
            .files_of(vms)
            .inspect_err(|_| self.search.errors += 1)?;
        self.control.after_files = 1;
        self.search.keep(vms, found);
        let searched = vms.iter().filter_map(|vm| self.search.found.get(vm));
        let ran: FxHashSet<u32> = searched
            .flat_map(OpenedByVm::ran)
            .map(|(_, tid)| tid)
            .collect();
        let mut threads = facts.threads.iter();
        Ok(threads.any(|thread| thread.vcpu.is_none() && ran.contains(&thread.tid)))
    }

    /// Passes over the open files of these VMs: about 0.5 µs a file. Where the kernel cannot
    /// look at one process, and for a VM whose vCPUs are among the files of another process,
    /// it passes over the files of the whole host.
    fn files_of(&mut self, vms: &FxHashSet<VmKey>) -> Result<OpenFiles, Error> {
        self.search.vhost.set(&self.maps, self.plan.vhost)?;
        let mut found = OpenFiles::default();
        if self.search.by_process {
            for vm in vms {
                let link = self.programs.attach_to(PROGRAM, vm.tgid);
                let link = link.map_err(|cause| not_started(&cause))?;
                read_each(&link, &mut self.stream, |part| found.feed(part))?;
            }
        }
        if let Some(all) = &self.search.all
            && !vms.iter().all(|vm| found.has_vcpus_of(*vm))
        {
            read_each(all, &mut self.stream, |part| found.feed(part))?;
        }
        Ok(found)
    }
}

fn not_started(cause: &io::Error) -> Error {
    Error::Stream(io::Error::other(format!(
        "cannot start the pass over the open files of a process: {cause}"
    )))
}

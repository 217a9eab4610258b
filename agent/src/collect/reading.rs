//! Takes one reading, from the source to the VMs of the snapshot.
//!
//! ```text
//! source.read ─► unknown VMs? read /proc, admit them ─► cgroups to watch
//!      ▲                                                changed? ──┐
//!      └──────────────── again, with them ◄────────────────────────┘
//! ```
//!
//! If a call of the backend fails, the reading fails. State changes only after the call
//! that can fail, so the next reading repeats the unfinished steps.

use std::sync::Arc;
use std::time::Instant;

use virtlens_model::facts::{Facts, ProcessFact};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::{Owner, VmKey};

use super::collector::{Collector, SEARCH_FILES_EVERY, nanos};
use crate::collect::backend::Backend;
use crate::collect::handover;

/// Limit on the rounds of one reading. New VMs change the set of watched cgroups, which
/// shows more threads: two rounds settle it, and a third is for hosts where VMs start all
/// the time.
const ROUNDS: usize = 3;

/// Number of readings in which an unreadable process is retried before its VM is admitted
/// under a generic name: a VM's name never changes.
const PROCESS_READS: u32 = 3;

impl Collector {
    /// Reads the VMs; returns whether they were judged too.
    pub(super) fn read(&mut self) -> anyhow::Result<(Vec<Vm>, bool)> {
        self.search_files();
        self.place_host()?;
        let due = self.placement.is_due(nanos(self.started.elapsed()));
        let (mut facts, at_ns) = self.settled_facts(due || self.pcpu_series)?;
        if let Backend::Bpf(pass, _) = &mut self.backend {
            self.ram_unread +=
                crate::collect::memory::follow(pass, &self.fleet, &self.root, &mut facts);
        }
        if let Some(names) = &mut self.names {
            names.update(&mut self.fleet);
        }
        let (vms, gone) = self.fleet.account(&facts, at_ns);
        self.gone.extend(gone);
        if due {
            let missed = self.fleet.missed(&facts).into_iter();
            let missed = missed.filter(|vm| !self.unread_in_row.contains_key(vm));
            self.gone.extend(missed.map(Owner::Vm));
        }
        if let Backend::Bpf(pass, _) = &mut self.backend {
            pass.accounted();
            pass.recycle(facts);
        }
        match self.keep_and_forget() {
            Ok(()) => self.upkeep.worked(),
            Err(error) => {
                if let Some(reason) = self.upkeep.failed(&error) {
                    tracing::warn!(
                        error = %reason,
                        "cannot update the handover map or remove ended VMs"
                    );
                }
            }
        }
        let vms = self.judged(vms, at_ns, due);
        // Without a source there was no reading.
        self.at_ns = (!matches!(self.backend, Backend::Nothing(_))).then_some(at_ns);
        Ok((vms, due))
    }

    /// Makes the reading search from time to time the open files of VMs whose threads do
    /// not show all vCPUs and vhost workers.
    fn search_files(&mut self) {
        let last = self.files_searched;
        let is_due = last.is_none_or(|last| last.elapsed() >= SEARCH_FILES_EVERY);
        if let (Backend::Bpf(pass, _), true) = (&mut self.backend, is_due) {
            pass.want_search();
            self.files_searched = Some(Instant::now());
        }
    }

    /// Passes the host's topology to the backend if it has changed.
    fn place_host(&mut self) -> anyhow::Result<()> {
        self.is_host_new |= self.placement.look(&self.root);
        if self.is_host_new {
            let host = self.placement.host();
            self.node.cpus = u32::try_from(host.online().len()).unwrap_or(u32::MAX);
            self.backend.set_host(host)?;
            self.fleet.set_host(Arc::clone(host));
            self.is_host_new = false;
            self.placement.hasten();
        }
        Ok(())
    }

    /// Returns the facts, including those from cgroups that new VMs add to the watched
    /// set, and the time of the reading.
    fn settled_facts(&mut self, with_residency: bool) -> anyhow::Result<(Facts, u64)> {
        let mut at_ns = nanos(self.started.elapsed());
        let mut facts = self.backend.read(with_residency)?;
        if let (Backend::Bpf(pass, _), false) = (&mut self.backend, self.has_taken_over) {
            handover::take(pass, &mut self.fleet, &facts, at_ns)?;
            self.has_taken_over = true;
        }
        for round in 0..ROUNDS {
            self.admit_unknown(&facts, round == 0);
            let cgroups = self.cgroups.as_ref().ok();
            self.fleet.follow(&facts, |path| cgroups?.id_of(path));
            let changes = Some(self.fleet.changes());
            if self.watched_as_of == changes {
                break;
            }
            let has_levels = self.backend.set_levels(self.fleet.levels())?;
            let has_cgroups = self.backend.watch(&self.fleet.watched())?;
            self.watched_as_of = changes;
            if !has_levels && !has_cgroups {
                break;
            }
            at_ns = nanos(self.started.elapsed());
            facts = self.backend.read(with_residency)?;
        }
        Ok((facts, at_ns))
    }

    /// Admits new VMs, if their identity is known.
    fn admit_unknown(&mut self, facts: &Facts, is_first: bool) {
        let unknown = self.fleet.unknown_vms(facts);
        let unread = self.unread_in_row.keys();
        let ended = unread.filter(|vm| is_first && !unknown.contains(vm));
        for vm in ended.copied().collect::<Vec<_>>() {
            self.unread_in_row.remove(&vm);
            self.gone.insert(Owner::Vm(vm));
        }
        for vm in unknown {
            // At most one attempt per reading.
            if !is_first && self.unread_in_row.contains_key(&vm) {
                continue;
            }
            if let Some(process) = self.who_is(vm, facts) {
                self.unread_in_row.remove(&vm);
                self.fleet.admit(vm, &process, facts);
            }
        }
    }

    /// Process facts of a VM. If the process is gone, or repeatedly unreadable, they
    /// contain what is known from its threads. `None`: try again.
    fn who_is(&mut self, vm: VmKey, facts: &Facts) -> Option<ProcessFact> {
        let error = match virtlens_host::process(&self.root, vm.tgid) {
            Ok(process) => return Some(process),
            Err(error) => error,
        };
        self.process_unread += 1;
        tracing::debug!(pid = vm.tgid, %error, "cannot read the process of a VM");
        let times = self.unread_in_row.entry(vm).or_default();
        *times += 1;
        if *times < PROCESS_READS && !error.is_gone() {
            return None;
        }
        let mut threads = facts.threads.iter();
        let own = threads.find(|thread| thread.owner == Owner::Vm(vm));
        Some(ProcessFact {
            comm: own.map(|thread| thread.process_comm).unwrap_or_default(),
            ..ProcessFact::default()
        })
    }

    /// Saves the state for the next agent, and only then drops the state of VMs that are
    /// gone, because another VM may carry their counters on. Without VMs, detaches hooks. The VMs of the reading are
    /// correct without this step. It therefore fails separately, and is repeated after
    /// the next reading.
    fn keep_and_forget(&mut self) -> anyhow::Result<()> {
        if let Backend::Bpf(pass, _) = &mut self.backend {
            handover::keep(pass, &mut self.fleet)?;
            // Only once the owner of all state is known.
            if self.unread_in_row.is_empty() {
                self.gone.extend(pass.left());
            }
        }
        if !self.gone.is_empty() {
            // State that an earlier agent left, or that of owners gone for longer, may belong
            // to a VM of the fleet.
            let owners = self.fleet.owners();
            self.gone.retain(|owner| !owners.contains(owner));
            self.backend.forget(&self.gone)?;
            self.gone.clear();
        }
        let is_idle = self.fleet.is_empty() && self.unread_in_row.is_empty();
        if let Backend::Bpf(pass, _) = &mut self.backend {
            pass.detach_when_idle(is_idle)?;
        }
        Ok(())
    }
}

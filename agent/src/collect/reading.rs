//! One reading, from the source to the VMs that are shown.
//!
//! ```text
//! source.read ─► unknown VMs? read /proc, admit them ─► cgroups to watch
//!      ▲                                                changed? ──┐
//!      └──────────────── again, with them ◄────────────────────────┘
//! ```
//!
//! Each call of the backend can fail, and then the reading fails. State changes only after
//! the call that can fail, so the next reading repeats what this one did not finish.

use std::time::{Duration, Instant};

use virtlens_model::facts::{Facts, ProcessFact};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::{Owner, VmKey};

use super::collector::{Collector, FILE_PASS_EVERY, nanos};
use crate::collect::backend::Backend;
use crate::collect::handover;

/// How often where all vCPU threads of a VM have ended while its process lives: its
/// files say whether it still has vCPUs.
const FILE_PASS_SOON: Duration = Duration::from_secs(5);

/// New VMs change what is watched, and what is watched shows more threads:
/// twice settles it, once more where VMs start all the time.
const ROUNDS: usize = 3;

/// A process that lives and cannot be read is asked again at as many readings, before
/// its VM is admitted under a name that says nothing: a VM's name never changes.
const PROCESS_READS: u32 = 3;

impl Collector {
    /// Reads the VMs; true if they were judged as well.
    pub(super) fn read(&mut self) -> anyhow::Result<(Vec<Vm>, bool)> {
        self.find_paused();
        self.place_host()?;
        let due = self.placement.is_due(nanos(self.started.elapsed()));
        let (mut facts, at_ns) = self.settled_facts(due || self.pcpu_series)?;
        if let Backend::Bpf(pass, _) = &mut self.backend {
            self.ram_unread +=
                crate::collect::memory::follow(pass, &self.fleet, &self.root, &mut facts);
        }
        if let Some(names) = &mut self.names {
            names.tell(&mut self.fleet);
        }
        let (mut vms, gone) = self.fleet.account(&facts, at_ns);
        self.gone.extend(gone);
        if let Backend::Bpf(pass, _) = &mut self.backend {
            pass.accounted();
            pass.recycle(facts);
        }
        match self.keep_and_forget() {
            Ok(()) => self.upkeep.worked(),
            Err(error) => {
                if let Some(reason) = self.upkeep.failed(&error) {
                    tracing::warn!(error = %reason, "cannot write the handover of VMs, or drop VMs that ended");
                }
            }
        }
        if due {
            let cgroups = self.cgroups.as_ref().ok();
            self.placement.judge(&vms, cgroups, at_ns);
        }
        self.placement.show(&mut vms);
        crate::collect::unapplied_limit::show_limits(&mut vms, self.cgroups.as_ref().ok());
        if due {
            self.watch.judge(&vms, at_ns);
        }
        self.watch.show(&mut vms);
        if due && !self.pcpu_series {
            let vcpus = vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
            vcpus.for_each(|vcpu| vcpu.residency_ns.clear());
        }
        let has_lost_vcpus = vms.iter().any(|vm| {
            let had = !vm.vcpus.is_empty();
            vm.running && had && vm.vcpus.iter().all(|vcpu| vcpu.tid.is_none())
        });
        self.walk_files_every = if has_lost_vcpus {
            FILE_PASS_SOON
        } else {
            FILE_PASS_EVERY
        };
        // Without a source there was no reading.
        self.at_ns = (!matches!(self.backend, Backend::Nothing(_))).then_some(at_ns);
        Ok((vms, due))
    }

    /// Looks for VMs whose vCPUs do not run, now and then. Without it a reading is whole
    /// but for those.
    fn find_paused(&mut self) {
        let last = self.files_walked;
        let is_due = last.is_none_or(|last| last.elapsed() >= self.walk_files_every);
        if let (Backend::Bpf(pass, _), true) = (&mut self.backend, is_due) {
            match pass.find_paused() {
                Ok(()) => self.files_walked = Some(Instant::now()),
                Err(error) => tracing::debug!(%error, "the pass over open files failed"),
            }
        }
    }

    /// Hands the host's topology to the backend where it has changed.
    fn place_host(&mut self) -> anyhow::Result<()> {
        self.is_host_new |= self.placement.look(&self.root);
        if self.is_host_new {
            let host = self.placement.host();
            self.node.cpus = u32::try_from(host.online().len()).unwrap_or(u32::MAX);
            self.backend.set_host(host)?;
            self.is_host_new = false;
            self.placement.hasten();
        }
        Ok(())
    }

    /// The facts with all that new VMs add to what is watched, and when they were read.
    fn settled_facts(&mut self, with_residency: bool) -> anyhow::Result<(Facts, u64)> {
        let mut at_ns = nanos(self.started.elapsed());
        let mut facts = self.backend.read(with_residency)?;
        if let (Backend::Bpf(pass, _), false) = (&mut self.backend, self.has_taken_over) {
            handover::take(pass, &mut self.fleet, &facts, at_ns)?;
            self.has_taken_over = true;
        }
        for round in 0..ROUNDS {
            self.admit_strangers(&facts, round == 0);
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

    /// Takes up VMs that are new, as far as it is known who they are.
    fn admit_strangers(&mut self, facts: &Facts, is_first: bool) {
        let strangers = self.fleet.strangers(facts);
        let unread = self.unread_in_row.keys();
        let ended = unread.filter(|vm| is_first && !strangers.contains(vm));
        for vm in ended.copied().collect::<Vec<_>>() {
            self.unread_in_row.remove(&vm);
            self.gone.insert(Owner::Vm(vm));
        }
        for vm in strangers {
            // Once a reading.
            if !is_first && self.unread_in_row.contains_key(&vm) {
                continue;
            }
            if let Some(process) = self.who_is(vm, facts) {
                self.unread_in_row.remove(&vm);
                self.fleet.admit(vm, &process, facts);
            }
        }
    }

    /// What a VM's process said of itself; where it is gone already, or cannot be read
    /// again and again, what is known from its threads. `None`: to be asked again.
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

    /// Leaves to the next agent what it needs, and only then drops what is kept of VMs
    /// that are gone: another VM may carry their counters on. The VMs that were read are
    /// right without it, so it fails alone, and is done again after the next reading.
    fn keep_and_forget(&mut self) -> anyhow::Result<()> {
        if let Backend::Bpf(pass, _) = &mut self.backend {
            handover::keep(pass, &mut self.fleet)?;
            // Not before it is known whose all of it is.
            if self.unread_in_row.is_empty() {
                self.gone.extend(pass.left());
            }
        }
        if self.gone.is_empty() {
            return Ok(());
        }
        // What an agent before left, or what is gone for longer, may be somebody's.
        let owners = self.fleet.owners();
        self.gone.retain(|owner| !owners.contains(owner));
        self.backend.forget(&self.gone)?;
        self.gone.clear();
        Ok(())
    }
}

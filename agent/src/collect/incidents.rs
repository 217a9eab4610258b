//! Keeps what is recorded around the onset of a warning or an alert, and traces the VM while it
//! lasts.
//!
//! ```text
//! reading ─► Onsets ─┬► Incidents::begin ─ a minute later ─► rest of the recording, end
//! alerts  ───────────┘      └► Tracing, one at a time
//! ```
//!
//! An incident is stored at its onset and completed a minute later, by the next agent if this
//! one is killed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use virtlens_export::Incidents as Counts;
use virtlens_host::HostRoot;
use virtlens_model::judge::onset::{Onsets, Skip};
use virtlens_model::snapshot::{Check, Severity, Snapshot, Vm};
use virtlens_probe::loader::Loader;
use virtlens_record::{Incident, Incidents as Store, Recorder};

use crate::collect::alerts::{Alerted, Alerts, Waiting};
use crate::collect::failing::Failing;
use crate::collect::shortage::shortage;
use crate::collect::tracing_child::{Goal, Outcome, Request, TraceLock, Tracing};

/// Duration of a trace.
const TRACE_LENGTH: Duration = Duration::from_secs(5);

/// Share of the limit that a trace may have.
const TRACE_AT_MOST: u64 = 8;

/// A trace does not start later than this before the end of an incident, ns: it would delay
/// the end.
const TRACE_TAKES_NS: u64 = 10_000_000_000;

/// Incidents to keep.
#[derive(Debug, Clone)]
pub struct Order {
    /// Most bytes of all incidents, MiB.
    pub max_mib: u64,
    /// Root of the host's /proc and /sys.
    pub root: HostRoot,
    /// Loader of the trace's programs.
    pub loader: Loader,
    /// Held while a trace is taken.
    pub lock: TraceLock,
    /// Alerts that fire for VMs.
    pub alerts: Alerts,
}

/// The incidents of a recording.
pub(super) struct Incidents {
    order: Order,
    folder: PathBuf,
    node: String,
    /// `None` while the directory cannot be used.
    store: Option<Store>,
    onsets: Onsets,
    open: Vec<Open>,
    /// The running trace, and the id of its incident until the trace is over.
    tracing: Option<(Tracing, Option<String>)>,
    counts: Arc<Mutex<Counts>>,
    failing: Failing,
}

/// An incident whose time has not ended.
struct Open {
    incident: Incident,
    wants_trace: bool,
    /// Why it has no trace yet.
    lack: String,
}

impl Incidents {
    /// Prepares to keep incidents of the recording in `folder`, and continues those of the
    /// previous agent. `last` is its last reading, with the time in ns since 1970.
    pub(super) fn open(
        order: Order,
        folder: &Path,
        node: &str,
        last: Option<(&Snapshot, u64)>,
        counts: Arc<Mutex<Counts>>,
    ) -> Self {
        let mut incidents = Self {
            order,
            folder: folder.to_owned(),
            node: node.to_owned(),
            store: None,
            onsets: Onsets::default(),
            open: Vec::new(),
            tracing: None,
            counts,
            failing: Failing::default(),
        };
        if let Some((snapshot, unix_ns)) = last {
            incidents.onsets.resume(snapshot, unix_ns);
        }
        if let Err(error) = incidents.open_store() {
            incidents.failed(&error);
        }
        incidents
    }

    fn open_store(&mut self) -> anyhow::Result<()> {
        let max_bytes = self.order.max_mib.saturating_mul(1 << 20);
        let (store, kept) = Store::open(&self.folder, max_bytes)?;
        self.store = Some(store);
        for incident in kept {
            let vm = &incident.vm;
            let checks = incident.checks();
            self.onsets
                .add_incident(vm.pid, &vm.vm, checks, incident.unix_ns);
            if !incident.is_complete {
                self.open.push(Open {
                    wants_trace: incident.trace.is_none(),
                    lack: "the agent ended before".to_owned(),
                    incident,
                });
            }
        }
        Ok(())
    }

    /// Handles a reading, before it is recorded.
    pub(super) fn see(&mut self, snapshot: &Snapshot, unix_ns: u64, recorder: &mut Recorder) {
        self.poll_trace();
        self.end_due(unix_ns, recorder);
        for onset in self.onsets.add(snapshot, unix_ns) {
            match onset.skip {
                None => {
                    let findings = onset.findings.into_iter().cloned().collect();
                    let time = &snapshot.time;
                    let incident = Incident::new(onset.vm, findings, &self.node, time, unix_ns);
                    self.try_to_begin(incident, recorder);
                }
                Some(skip) => self.skipped(skip),
            }
        }
        let Waiting { alerts, lost } = self.order.alerts.take();
        for alerted in &alerts {
            self.alerted(alerted, snapshot, unix_ns, recorder);
        }
        // The node has far fewer incidents than alerts that may wait.
        (0..lost).for_each(|_| self.skipped(Skip::NodeRate));
        self.start_trace(snapshot, unix_ns);
    }

    /// Begins an incident of a VM for which an alert fires, or adds the alert to the one whose
    /// time has not ended.
    fn alerted(
        &mut self,
        alerted: &Alerted,
        snapshot: &Snapshot,
        unix_ns: u64,
        recorder: &Recorder,
    ) {
        let Alerted { pid, vm, alert } = alerted;
        let is_open = |open: &&mut Open| {
            let of = &open.incident.vm;
            of.pid == *pid && of.vm == *vm
        };
        if let (Some(open), Some(store)) = (self.open.iter_mut().find(is_open), &self.store) {
            if open.incident.add_alert(alert)
                && let Err(error) = store.save(&open.incident)
            {
                self.failed(&error.into());
            }
            return;
        }
        let mut vms = snapshot.vms.iter();
        // It may have ended since the alert arrived.
        let Some(vm) = vms.find(|one| one.running && one.pid == *pid && one.vm == *vm) else {
            return;
        };
        if let Some(skip) = self.onsets.skip(vm, unix_ns) {
            self.skipped(skip);
            return;
        }
        let findings = vm.findings.iter().flat_map(|found| found.iter());
        let findings = findings.cloned().collect();
        let mut incident = Incident::new(vm, findings, &self.node, &snapshot.time, unix_ns);
        incident.add_alert(alert);
        self.try_to_begin(incident, recorder);
    }

    fn try_to_begin(&mut self, incident: Incident, recorder: &Recorder) {
        match self.begin(incident, recorder) {
            Ok(()) => self.failing.worked(),
            Err(error) => {
                self.skipped(Skip::Failed);
                self.failed(&error);
            }
        }
    }

    fn begin(&mut self, mut incident: Incident, recorder: &Recorder) -> anyhow::Result<()> {
        if self.store.is_none() {
            self.open_store()?;
        }
        let store = self.store.as_mut().context("no directory")?;
        let segments = recorder.segments_since(incident.from_ns);
        store.begin(&mut incident, &segments)?;
        let checks: Vec<&str> = incident.checks().map(Check::name).collect();
        tracing::info!(
            id = incident.id,
            vm = &*incident.vm.vm,
            pid = incident.vm.pid,
            checks = checks.join(","),
            alerts = incident.alerts.join(","),
            "incident"
        );
        {
            let mut counts = lock(&self.counts);
            if incident.alerts.is_empty() {
                incident.checks().for_each(|check| counts.begun(check));
            } else {
                counts.begun_by_alert();
            }
        }
        self.open.push(Open {
            incident,
            wants_trace: true,
            lack: "it was not started".to_owned(),
        });
        Ok(())
    }

    /// Ends the incidents whose time has passed.
    fn end_due(&mut self, unix_ns: u64, recorder: &mut Recorder) {
        let traced = self.tracing.as_ref().and_then(|(_, id)| id.as_deref());
        let is_due = |open: &Open| {
            let incident = &open.incident;
            // The clock may have been set back.
            !(incident.unix_ns..incident.until_ns).contains(&unix_ns)
                && traced != Some(&*incident.id)
        };
        let (due, open) = std::mem::take(&mut self.open).into_iter().partition(is_due);
        self.open = open;
        for open in due {
            if let Err(error) = self.end(open, recorder) {
                self.skipped(Skip::Failed);
                self.failed(&error);
            }
        }
    }

    fn end(&self, open: Open, recorder: &mut Recorder) -> anyhow::Result<()> {
        let Open {
            mut incident, lack, ..
        } = open;
        let store = self.store.as_ref().context("no directory")?;
        // Later readings are not part of it.
        recorder.rotate();
        store.link(&incident.id, &recorder.segments_since(incident.from_ns))?;
        incident.is_complete = true;
        incident.trace_missing = incident.trace.is_none().then_some(lack);
        store.save(&incident)?;
        Ok(store.trim()?)
    }

    /// Keeps the trace that has ended.
    fn poll_trace(&mut self) {
        let Some((tracing, id)) = &mut self.tracing else {
            return;
        };
        if id.is_some() {
            let Some(outcome) = tracing.poll() else {
                return;
            };
            let mut all = self.open.iter_mut();
            let open = all.find(|open| Some(&open.incident.id) == id.as_ref());
            if let (Some(open), Some(store)) = (open, &self.store)
                && let Err(error) = keep_trace(store, open, outcome)
            {
                open.lack = format!("it was not kept: {error}");
            }
            *id = None;
        }
        if tracing.has_ended() {
            self.tracing = None;
        }
    }

    /// Starts the trace of an incident whose warnings last.
    fn start_trace(&mut self, snapshot: &Snapshot, unix_ns: u64) {
        let (Some(store), None) = (&self.store, &self.tracing) else {
            return;
        };
        let max_mib = self.order.max_mib / TRACE_AT_MOST;
        for open in &mut self.open {
            let until_ns = open.incident.until_ns.saturating_sub(TRACE_TAKES_NS);
            if !open.wants_trace || unix_ns >= until_ns {
                continue;
            }
            let mut vms = snapshot.vms.iter();
            let vm = vms.find(|vm| vm.running && open.incident.vm.is(vm));
            let lack = match vm {
                None => Some("the VM ended before".to_owned()),
                Some(vm) if !lasts(&open.incident, vm) => {
                    Some("the warnings ended before".to_owned())
                }
                Some(_) if max_mib == 0 => Some("--incidents-max-mib is too low".to_owned()),
                Some(_) => shortage(&self.order.root),
            };
            if let Some(lack) = lack {
                open.lack = lack;
                continue;
            }
            let Some(lock) = self.order.lock.try_lock() else {
                "a client's trace was being taken".clone_into(&mut open.lack);
                return;
            };
            // Another attempt would probably fail, too.
            open.wants_trace = false;
            let id = open.incident.id.clone();
            let started = store.begin_trace(&id).and_then(|file| {
                let request = Request {
                    pid: open.incident.vm.pid,
                    length: TRACE_LENGTH,
                    max_mib,
                };
                let Order { root, loader, .. } = &self.order;
                Tracing::start(lock, &request, Goal::Named(file), root, *loader)
            });
            match started {
                Ok(tracing) => {
                    self.tracing = Some((tracing, Some(id)));
                    return;
                }
                Err(error) => open.lack = format!("it cannot be started: {error}"),
            }
        }
    }

    /// Removes the oldest incident, whose links keep the space of removed segments in use.
    pub(super) fn make_room(&mut self) {
        if let Some(store) = &self.store
            && let Err(error) = store.remove_oldest()
        {
            self.failed(&error.into());
        }
    }

    fn skipped(&self, skip: Skip) {
        lock(&self.counts).skipped(skip);
    }

    /// Logs a new reason.
    fn failed(&mut self, error: &anyhow::Error) {
        if let Some(reason) = self.failing.failed(error) {
            tracing::warn!(error = %reason, "cannot keep an incident");
        }
    }
}

fn keep_trace(store: &Store, open: &mut Open, outcome: Outcome) -> std::io::Result<()> {
    match outcome {
        Outcome::Taken => store.keep_trace(&mut open.incident),
        Outcome::Failed(reason) => {
            store.drop_trace(&open.incident.id);
            open.lack = reason;
            Ok(())
        }
    }
}

/// Whether a VM still has one of the incident's warnings. An alert lasts as long as its
/// incident: its end is unknown.
fn lasts(incident: &Incident, vm: &Vm) -> bool {
    if !incident.alerts.is_empty() {
        return true;
    }
    let mut findings = vm.findings.iter().flat_map(|found| found.iter());
    findings.any(|finding| {
        let is_of_it = incident.checks().any(|check| check == finding.check);
        finding.severity == Severity::Warning && is_of_it
    })
}

pub(super) fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

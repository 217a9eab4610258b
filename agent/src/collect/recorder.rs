//! One thread that records readings, so that no scrape waits for the disk.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use virtlens_export::{Incidents as IncidentCounts, Recording};
use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Failure, Limits, Recorder, Recording as Records};

use crate::collect::failing::Failing;
use crate::collect::incidents::{self, Incidents};
use crate::moment::unix_ns_of;
use crate::process;

/// Readings that wait for the disk. Each holds a snapshot in memory.
const MAX_WAITING: usize = 2;

/// A recording to make.
#[derive(Debug, Clone)]
pub struct Order {
    /// The directory.
    pub folder: PathBuf,
    /// Longest time without a reading.
    pub interval: Duration,
    /// Bounds of the recording.
    pub limits: Limits,
    /// Name of the node.
    pub node: String,
    /// Id of the node's boot, if known.
    pub boot_id: Option<String>,
    /// Incidents to keep; `None` = none.
    pub incidents: Option<incidents::Order>,
}

/// Passes readings to the thread.
pub(super) struct Keeper {
    readings: SyncSender<Arc<Snapshot>>,
    counts: Arc<Counts>,
    /// Whether incidents are kept.
    has_incidents: bool,
    /// Longest time without a reading.
    pub(super) interval: Duration,
}

/// Number of readings by their fate, and the size of the recording.
#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    late: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    incidents: Arc<Mutex<IncidentCounts>>,
}

impl Keeper {
    /// Starts the thread, which ends with the returned value. A directory that cannot be used
    /// is tried again with each reading.
    pub(super) fn start(order: Order) -> std::io::Result<Self> {
        let (readings, receiver) = sync_channel(MAX_WAITING);
        let counts = Arc::<Counts>::default();
        let keeper = Self {
            readings,
            counts: Arc::clone(&counts),
            has_incidents: order.incidents.is_some(),
            interval: order.interval,
        };
        std::thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || Thread::new(order, counts).record_all(&receiver))?;
        Ok(keeper)
    }

    /// Records a reading, unless the disk is behind.
    pub(super) fn keep(&self, snapshot: &Arc<Snapshot>) {
        if self.readings.try_send(Arc::clone(snapshot)).is_err() {
            self.counts.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of readings by their fate, and the size of the recording.
    pub(super) fn state(&self) -> Recording {
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Recording {
            kept: value(&self.counts.kept),
            late: value(&self.counts.late),
            failed: value(&self.counts.failed),
            bytes: value(&self.counts.bytes),
            incidents: self
                .has_incidents
                .then(|| *incidents::lock(&self.counts.incidents)),
        }
    }
}

/// The thread.
struct Thread {
    order: Order,
    counts: Arc<Counts>,
    open: Option<Open>,
    failing: Failing,
}

/// A recording that can be written.
struct Open {
    recorder: Recorder,
    incidents: Option<Incidents>,
}

impl Thread {
    fn new(order: Order, counts: Arc<Counts>) -> Self {
        Self {
            order,
            counts,
            open: None,
            failing: Failing::default(),
        }
    }

    fn record_all(mut self, readings: &Receiver<Arc<Snapshot>>) {
        while let Ok(snapshot) = readings.recv() {
            match self.record(&snapshot) {
                Ok(()) => {
                    if self.failing.is_failing() {
                        tracing::info!("recording again");
                    }
                    self.failing.worked();
                    self.counts.kept.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    if let Some(reason) = self.failing.failed(&error.into()) {
                        tracing::warn!(error = %reason, "cannot record");
                    }
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            let recorder = self.open.as_ref().map(|open| &open.recorder);
            let bytes = recorder.map_or(0, Recorder::bytes);
            self.counts.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    fn record(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(open(&self.order, &self.counts)?),
        };
        let unix_ns = unix_ns_of(snapshot);
        if let Some(incidents) = &mut open.incidents {
            incidents.see(snapshot, unix_ns, &mut open.recorder);
        }
        let recorded = open.recorder.record(snapshot, unix_ns);
        if let (Err(Failure::Disk { error, .. }), Some(incidents)) =
            (&recorded, &mut open.incidents)
            && error.kind() == ErrorKind::StorageFull
        {
            incidents.make_room();
        }
        recorded.map(|_| ())
    }
}

fn open(order: &Order, counts: &Counts) -> Result<Open, Failure> {
    let recorder = Recorder::open(
        &order.folder,
        order.limits.clone(),
        &order.node,
        process::VERSION,
        order.boot_id.clone(),
    )?;
    let incidents = order.incidents.clone().map(|wanted| {
        // An unreadable recording has no warnings that continue.
        let records = Records::open(&order.folder).ok();
        let last = records.and_then(|(records, _)| records.at(u64::MAX).ok()?);
        let last = last.as_ref().map(|last| (&last.snapshot, last.unix_ns));
        let counts = Arc::clone(&counts.incidents);
        Incidents::open(wanted, &order.folder, &order.node, last, counts)
    });
    Ok(Open {
        recorder,
        incidents,
    })
}

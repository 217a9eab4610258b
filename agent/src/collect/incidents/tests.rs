use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use virtlens_export::Incidents as Counts;
use virtlens_host::HostRoot;
use virtlens_model::judge::onset::Skip;
use virtlens_model::snapshot::{Check, Finding, Snapshot, Vm};
use virtlens_probe::loader::Loader;
use virtlens_record::{Incident, Limits, Recorder, Recording, incidents};
use virtlens_tests::blank;

use super::{Incidents, Order, TraceLock};
use crate::collect::alerts::Alerts;

const START_NS: u64 = 1_800_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// An agent that keeps incidents without traces, for which the limit is too low.
struct Agent {
    recorder: Recorder,
    incidents: Incidents,
    counts: Arc<Mutex<Counts>>,
}

impl Agent {
    fn start(records: &Path) -> Self {
        let limits = Limits {
            max_bytes: 1 << 30,
            max_age: Duration::from_hours(1),
        };
        let recorder = Recorder::open(records, limits, "node-a", "0.1.0", None);
        let order = Order {
            max_mib: 7,
            root: HostRoot::default(),
            loader: Loader::default(),
            lock: TraceLock::default(),
            alerts: Alerts::default(),
        };
        let (read, _) = Recording::open(records).expect("it is there");
        let last = read.at(u64::MAX).expect("it is whole");
        let last = last.as_ref().map(|last| (&last.snapshot, last.unix_ns));
        let counts = Arc::<Mutex<Counts>>::default();
        Self {
            recorder: recorder.expect("the folder is ours"),
            incidents: Incidents::open(order, records, "node-a", last, Arc::clone(&counts)),
            counts,
        }
    }

    /// Takes a reading of each of these seconds.
    fn run(&mut self, seconds: std::ops::Range<u64>, is_capped: bool) {
        for second in seconds {
            let (snapshot, unix_ns) = reading(second, is_capped);
            self.incidents.see(&snapshot, unix_ns, &mut self.recorder);
            let recorded = self.recorder.record(&snapshot, unix_ns);
            recorded.expect("there is room");
        }
    }

    fn counted(&self) -> Counts {
        *self.counts.lock().expect("no test panicked with it")
    }
}

fn reading(second: u64, is_capped: bool) -> (Snapshot, u64) {
    let found = is_capped.then(|| Finding::new(Check::QuotaCapped, "capped".to_owned(), 2.0));
    let vm = Vm {
        vm: "db-01".into(),
        pid: 7,
        running: true,
        findings: Some(found.into_iter().collect()),
        ..Vm::default()
    };
    let mut snapshot = blank::snapshot(vec![vm]);
    snapshot.clock_ns = second * SECOND_NS;
    (snapshot, START_NS + second * SECOND_NS)
}

fn kept(records: &Path) -> Vec<Incident> {
    incidents(records).expect("it is there").0
}

/// Seconds of the readings that an incident has.
fn seconds(records: &Path, incident: &Incident) -> Vec<u64> {
    let path = records.join("incidents").join(&incident.id);
    let (recording, _) = Recording::open(&path).expect("it is there");
    let read = recording.between(0..u64::MAX);
    read.map(|one| (one.expect("it is whole").unix_ns - START_NS) / SECOND_NS)
        .collect()
}

#[test]
fn incident_is_stored_at_onset_and_complete_a_minute_later() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut agent = Agent::start(folder.path());
    agent.run(0..30, false);
    agent.run(30..31, true);
    let begun = kept(folder.path());
    assert_eq!(begun.len(), 1);
    assert!(!begun[0].is_complete);
    assert_eq!(
        seconds(folder.path(), &begun[0]),
        (0..31).collect::<Vec<_>>()
    );
    agent.run(31..200, true);
    let ended = kept(folder.path());
    assert!(ended[0].is_complete);
    let lack = ended[0].trace_missing.as_deref();
    assert_eq!(lack, Some("--incidents-max-mib is too low"));
    // The reading of the 90th second is not part of it.
    assert_eq!(
        seconds(folder.path(), &ended[0]),
        (0..90).collect::<Vec<_>>()
    );
    let mut expected = Counts::default();
    expected.begun(Check::QuotaCapped);
    assert_eq!(agent.counted(), expected);
}

#[test]
fn next_agent_completes_incident_and_begins_none_for_the_same_warning() {
    for (killed, restarted) in [(35, 40), (35, 200)] {
        let folder = tempfile::tempdir().expect("there is room");
        let mut agent = Agent::start(folder.path());
        agent.run(0..30, false);
        agent.run(30..killed, true);
        drop(agent);
        let mut agent = Agent::start(folder.path());
        agent.run(restarted..restarted + 100, true);
        let ended = kept(folder.path());
        assert_eq!(ended.len(), 1);
        assert!(ended[0].is_complete);
        let expected: Vec<u64> = (0..killed).chain(restarted..90.max(restarted)).collect();
        let read = seconds(folder.path(), &ended[0]);
        assert_eq!(read, expected[..], "restarted at {restarted} s");
        assert_eq!(agent.counted(), Counts::default());
    }
}

#[test]
fn directory_that_cannot_be_used_is_counted_and_tried_again() {
    let folder = tempfile::tempdir().expect("there is room");
    let blocking = folder.path().join("incidents");
    std::fs::write(&blocking, "").expect("there is room");
    let mut agent = Agent::start(folder.path());
    agent.run(0..10, true);
    let mut expected = Counts::default();
    expected.skipped(Skip::Failed);
    assert_eq!(agent.counted(), expected);
    std::fs::remove_file(&blocking).expect("it is there");
    // It pauses for long enough to begin again.
    agent.run(10..700, false);
    agent.run(700..710, true);
    assert_eq!(kept(folder.path()).len(), 1);
}

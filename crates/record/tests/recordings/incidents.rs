//! Incidents are bounded, the oldest goes first, and remainders of killed agents are harmless.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use virtlens_model::snapshot::{Check, Finding, Vm};
use virtlens_record::{Incident, Incidents, Limits, Recorder, Recording, incidents};
use virtlens_tests::fixture;

use crate::moving::{at, recorder};

const MIB: u64 = 1 << 20;

/// An incident at a second.
fn incident(second: usize) -> Incident {
    let vm = Vm {
        vm: "db-01".into(),
        pid: 7,
        ..Vm::default()
    };
    let finding = Finding::new(Check::QuotaCapped, "throttled".to_owned(), 2.0);
    let time = format!("2026-01-31T03:10:{:02}Z", second % 60);
    Incident::new(&vm, vec![finding], "node-a", &time, at(second))
}

fn open(records: &Path) -> Incidents {
    Incidents::open(records, 64 * MIB)
        .expect("the folder is ours")
        .0
}

fn ids(records: &Path) -> Vec<String> {
    let (readable, unreadable) = incidents(records).expect("it is there");
    assert!(unreadable.is_empty(), "{unreadable:?}");
    readable.into_iter().map(|one| one.id).collect()
}

fn times(folder: &Path) -> Vec<u64> {
    let (recording, _) = Recording::open(folder).expect("it is there");
    let read = recording.between(0..u64::MAX);
    read.map(|one| one.expect("it is whole").unix_ns).collect()
}

/// A file with this many bytes.
fn file(folder: &Path, name: &str, bytes: u64) -> PathBuf {
    let path = folder.join(name);
    let created = fs::File::create(&path).expect("there is room");
    created.set_len(bytes).expect("there is room");
    path
}

#[test]
fn incident_keeps_readings_that_the_recording_removes() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let limits = Limits {
        max_bytes: 1 << 30,
        max_age: Duration::from_mins(5),
    };
    let mut recorder =
        Recorder::open(records, limits, "node-a", "0.1.0", None).expect("it is ours");
    let mut store = open(records);
    let record = |recorder: &mut Recorder, seconds: std::ops::Range<usize>| {
        for second in seconds {
            let recorded = recorder.record(&fixture::snapshot(), at(second));
            recorded.expect("there is room");
        }
    };
    record(&mut recorder, 0..1000);
    let mut incident = incident(1000);
    assert_eq!((incident.from_ns, incident.until_ns), (at(700), at(1060)));
    let segments = recorder.segments_since(incident.from_ns);
    store
        .begin(&mut incident, &segments)
        .expect("there is room");
    record(&mut recorder, 1000..1061);
    recorder.rotate();
    let segments = recorder.segments_since(incident.from_ns);
    store.link(&incident.id, &segments).expect("there is room");
    incident.is_complete = true;
    store.save(&incident).expect("there is room");
    record(&mut recorder, 1061..3000);

    assert!(times(records)[0] > at(1061), "the recording went on");
    let kept = times(&store.path(&incident.id));
    let wanted: Vec<u64> = (700..=1060).map(at).collect();
    let first = kept.iter().position(|time| *time == wanted[0]);
    let first = first.expect("the first one is there");
    assert!(first < 64, "the part of a segment");
    assert_eq!(kept[first..], wanted);
    let (read, _) = incidents(records).expect("it is there");
    assert_eq!(read, [incident]);
}

#[test]
fn remainders_of_killed_agents_are_removed() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let mut first = incident(0);
    let mut store = open(records);
    store.begin(&mut first, &[]).expect("there is room");
    let path = store.path(&first.id);
    // An agent was killed while it stored a second incident, and while the first one changed.
    let torn = records.join("incidents/20260131T031000Z-000001");
    fs::create_dir(&torn).expect("there is room");
    file(&torn, "incident.json.new", 10);
    file(&path, "incident.json.new", 10);
    file(&path, "trace.pftrace.part", 10);
    // Directories that are not incidents are not touched.
    let foreign = records.join("incidents/lost+found");
    fs::create_dir(&foreign).expect("there is room");

    assert_eq!(ids(records), [first.id.clone()], "a reader ignores them");
    let (mut store, kept) = Incidents::open(records, 64 * MIB).expect("it is ours");
    assert_eq!(kept, [first.clone()]);
    assert!(!torn.exists() && foreign.exists());
    let files: Vec<_> = fs::read_dir(&path)
        .expect("it is there")
        .map(|file| file.expect("it is there").file_name())
        .collect();
    assert_eq!(files, ["incident.json"]);
    let mut next = incident(0);
    store.begin(&mut next, &[]).expect("there is room");
    assert!(
        next.id > first.id && next.id.ends_with("-000002"),
        "{}",
        next.id
    );
}

#[test]
fn files_are_private() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = recorder(folder.path());
    let recorded = recorder.record(&fixture::snapshot(), at(0));
    recorded.expect("there is room");
    let mut store = open(folder.path());
    let mut one = incident(0);
    store
        .begin(&mut one, &recorder.segments_since(0))
        .expect("there is room");
    store.begin_trace(&one.id).expect("there is room");
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    let path = store.path(&one.id);
    assert_eq!(mode(&folder.path().join("incidents")), 0o700);
    assert_eq!(mode(&path), 0o700);
    let files = fs::read_dir(&path).expect("it is there");
    let modes: Vec<u32> = files
        .map(|file| mode(&file.expect("it is there").path()))
        .collect();
    assert_eq!(modes, [0o600; 3]);
}

#[test]
fn fifty_incidents_are_kept_and_the_oldest_goes_first() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut store = open(folder.path());
    let mut all = Vec::new();
    for second in 0..60 {
        // A clock that is set back does not make a new incident the oldest.
        let mut one = incident(59 - second);
        store.begin(&mut one, &[]).expect("there is room");
        all.push(one.id);
    }
    assert_eq!(ids(folder.path()), all[10..]);
    store.remove_oldest().expect("it is there");
    assert_eq!(ids(folder.path()), all[11..]);
}

#[test]
fn bytes_stay_below_their_limit() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let (mut store, _) = Incidents::open(records, 10 * MIB).expect("it is ours");
    let mut all = Vec::new();
    for number in 0..5 {
        let own = file(records, &format!("{number}.vlrec"), 3 * MIB);
        let mut one = incident(number);
        store.begin(&mut one, &[own]).expect("there is room");
        all.push(one.id);
    }
    assert_eq!(ids(records), all[2..], "three of 3 MiB are below 10 MiB");
    // A segment of several incidents has its bytes once.
    let shared = file(records, "shared.vlrec", 2 * MIB);
    for number in 5..10 {
        let mut one = incident(number);
        store
            .begin(&mut one, std::slice::from_ref(&shared))
            .expect("there is room");
        all.push(one.id);
    }
    assert_eq!(ids(records), all[3..]);
    drop(store);
    drop(Incidents::open(records, 5 * MIB).expect("it is ours"));
    assert_eq!(ids(records), all[5..], "a lower limit holds at the start");
}

#[test]
fn last_segments_are_kept_if_all_are_too_many() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let (mut store, _) = Incidents::open(records, 10 * MIB).expect("it is ours");
    let segments: Vec<_> = (0..9)
        .map(|number| file(records, &format!("{number}.vlrec"), MIB))
        .collect();
    let mut one = incident(0);
    store.begin(&mut one, &segments).expect("there is room");
    // A segment that was removed meanwhile is no error.
    fs::remove_file(&segments[8]).expect("it is there");
    store.link(&one.id, &segments).expect("there is room");
    let path = store.path(&one.id);
    let kept: Vec<bool> = (0..9)
        .map(|number| path.join(format!("{number}.vlrec")).exists())
        .collect();
    let expected: Vec<bool> = (0..9).map(|number| number >= 3).collect();
    assert_eq!(kept, expected);
}

#[test]
fn damaged_and_copied_incidents_are_named() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    assert!(ids(records).is_empty(), "no incident yet");
    let mut store = open(records);
    let mut all = Vec::new();
    for second in 0..4 {
        let mut one = incident(second);
        store.begin(&mut one, &[]).expect("there is room");
        all.push(store.path(&one.id));
    }
    let write = |index: usize, text: &[u8]| {
        fs::write(all[index].join("incident.json"), text).expect("there is room");
    };
    write(0, b"{}");
    write(1, &vec![b' '; 1 << 20]);
    fs::copy(all[3].join("incident.json"), all[2].join("incident.json")).expect("there is room");
    let (readable, unreadable) = incidents(records).expect("it is there");
    assert_eq!(readable.len(), 1);
    let errors: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    for (error, words) in errors
        .iter()
        .zip(["missing field", "longer than", "another directory"])
    {
        assert!(error.contains(words), "{error}");
    }
    assert!(incidents(&records.join("nowhere")).is_err());
}

#[test]
fn incident_that_cannot_be_stored_leaves_nothing() {
    let folder = tempfile::tempdir().expect("there is room");
    let records = folder.path();
    let mut store = open(records);
    let mut hostile = incident(0);
    hostile.vm.vm = "x".repeat(300 << 10).into();
    let error = store.begin(&mut hostile, &[]).expect_err("it is too long");
    assert!(error.to_string().contains("too long"), "{error}");
    let left = fs::read_dir(records.join("incidents")).expect("it is there");
    assert_eq!(left.count(), 0);
    // The disk refuses it.
    fs::remove_dir(records.join("incidents")).expect("it is empty");
    assert!(store.begin(&mut incident(1), &[]).is_err());
    file(records, "incidents", 0);
    assert!(Incidents::open(records, MIB).is_err());
}

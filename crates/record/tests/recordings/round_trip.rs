//! What is read equals what was recorded.

use proptest::prelude::*;
use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Mark, Recorded, Recording};
use virtlens_tests::fixture;

use crate::moving::{at, readings, recorder};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn readings_round_trip(readings in readings()) {
        let folder = tempfile::tempdir().expect("there is room");
        let mut recorder = recorder(folder.path());
        for (index, reading) in readings.iter().enumerate() {
            recorder.record(reading, at(index)).expect("there is room");
        }
        let (recording, refused) = Recording::open(folder.path()).expect("it is there");
        prop_assert!(refused.is_empty());
        let read: Vec<Recorded> = recording
            .between(0..u64::MAX)
            .collect::<Result<_, _>>()
            .expect("it is whole");
        prop_assert_eq!(read.len(), readings.len());
        for (index, (read, reading)) in read.iter().zip(&readings).enumerate() {
            prop_assert_eq!(read.unix_ns, at(index));
            prop_assert!(read.snapshot == *reading, "reading {index}");
        }
    }
}

/// Readings over several segments, of which each has its number as its clock.
fn numbered(count: usize) -> (tempfile::TempDir, Recording) {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = recorder(folder.path());
    for index in 0..count {
        let snapshot = Snapshot {
            clock_ns: index as u64,
            ..fixture::snapshot()
        };
        recorder
            .record(&snapshot, at(index))
            .expect("there is room");
    }
    drop(recorder);
    let (recording, refused) = Recording::open(folder.path()).expect("it is there");
    assert!(refused.is_empty());
    (folder, recording)
}

#[test]
fn reading_at_a_time_is_the_last_one_before() {
    let (_folder, recording) = numbered(200);
    let clock = |unix_ns| {
        let found = recording.at(unix_ns).expect("it is whole");
        found.map(|found| (found.snapshot.clock_ns, found.unix_ns))
    };
    assert_eq!(clock(at(0) - 1), None);
    for index in [0, 1, 127, 128, 129, 199] {
        let number = index as u64;
        assert_eq!(clock(at(index)), Some((number, at(index))));
        assert_eq!(clock(at(index) + 999_999_999), Some((number, at(index))));
    }
    assert_eq!(clock(u64::MAX), Some((199, at(199))));
}

#[test]
fn readings_between_two_times_are_complete_and_in_order() {
    let (_folder, recording) = numbered(200);
    for (from, to) in [
        (0, 200),
        (127, 129),
        (64, 128),
        (128, 200),
        (199, 200),
        (100, 100),
    ] {
        let read = recording.between(at(from)..at(to));
        let read: Vec<u64> = read
            .map(|one| one.expect("it is whole").snapshot.clock_ns)
            .collect();
        let expected: Vec<u64> = (from as u64..to as u64).collect();
        assert_eq!(read, expected, "{from} to {to}");
    }
}

#[test]
fn readings_before_a_clock_was_set_back_to_the_start_of_a_segment_are_read() {
    let folder = tempfile::tempdir().expect("there is room");
    for times in [0..10, 0..3] {
        let mut recorder = recorder(folder.path());
        for index in times {
            let reading = recorder.record(&fixture::snapshot(), at(index));
            reading.expect("there is room");
        }
    }
    let (recording, _) = Recording::open(folder.path()).expect("it is there");
    let count = |from, to| recording.between(at(from)..at(to)).count();
    assert_eq!([count(0, 3), count(5, 10)], [6, 5]);
}

#[test]
fn list_has_the_time_and_the_warnings_of_each_reading() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = recorder(folder.path());
    let with_warning = fixture::snapshot();
    let mut without = with_warning.clone();
    without.vms.iter_mut().for_each(|vm| vm.findings = None);
    for index in 0..200 {
        let snapshot = if index % 3 == 0 {
            &with_warning
        } else {
            &without
        };
        recorder.record(snapshot, at(index)).expect("there is room");
    }
    drop(recorder);
    let (recording, _) = Recording::open(folder.path()).expect("it is there");
    let (marks, lost) = recording.marks();
    assert!(lost.is_empty(), "{lost:?}");
    let expected = (0..200).map(|index| Mark {
        unix_ns: at(index),
        warnings: u32::from(index % 3 == 0),
        begun: u32::from(index % 3 == 0),
    });
    assert_eq!(marks, expected.collect::<Vec<_>>());
}

#[test]
fn one_segment_is_a_recording_too() {
    let (folder, _) = numbered(134);
    let mut files = std::fs::read_dir(folder.path()).expect("it is there");
    let file = files.find_map(|file| {
        let path = file.expect("it is there").path();
        path.to_str()?.ends_with("1.vlrec").then_some(path)
    });
    let (recording, _) = Recording::open(&file.expect("there is a second one")).expect("it is one");
    assert_eq!(recording.first_ns(), Some(at(128)));
    assert_eq!(recording.between(0..u64::MAX).count(), 6);
}

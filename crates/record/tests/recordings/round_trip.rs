//! What is read equals what was recorded.

use proptest::prelude::*;
use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Recorded, Recording};
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
    for index in [0, 1, 63, 64, 65, 127, 128, 199] {
        let number = index as u64;
        assert_eq!(clock(at(index)), Some((number, at(index))));
        assert_eq!(clock(at(index) + 999_999_999), Some((number, at(index))));
    }
    assert_eq!(clock(u64::MAX), Some((199, at(199))));
}

#[test]
fn readings_between_two_times_are_complete_and_in_order() {
    let (_folder, recording) = numbered(200);
    for (from, to) in [(0, 200), (63, 65), (64, 128), (199, 200), (100, 100)] {
        let read = recording.between(at(from)..at(to));
        let read: Vec<u64> = read
            .map(|one| one.expect("it is whole").snapshot.clock_ns)
            .collect();
        let expected: Vec<u64> = (from as u64..to as u64).collect();
        assert_eq!(read, expected, "{from} to {to}");
    }
}

#[test]
fn one_segment_is_a_recording_too() {
    let (folder, _) = numbered(70);
    let mut files = std::fs::read_dir(folder.path()).expect("it is there");
    let file = files.find_map(|file| {
        let path = file.expect("it is there").path();
        path.to_str()?.ends_with("1.vlrec").then_some(path)
    });
    let (recording, _) = Recording::open(&file.expect("there is a second one")).expect("it is one");
    assert_eq!(recording.first_ns(), Some(at(64)));
    assert_eq!(recording.between(0..u64::MAX).count(), 6);
}

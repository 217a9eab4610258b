//! A recording is bounded, and the oldest readings go first.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use virtlens_record::{Failure, Limits, Recorder, Recording};
use virtlens_tests::fixture;

use crate::moving::{at, recorder, run};

fn limited(folder: &Path, max_bytes: u64, max_age: Duration) -> Recorder {
    let limits = Limits { max_bytes, max_age };
    Recorder::open(folder, limits, "node-a", "0.1.0", None).expect("the folder is ours")
}

fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).expect("it is there");
    files
        .map(|file| {
            file.expect("it is there")
                .metadata()
                .expect("it is there")
                .len()
        })
        .sum()
}

fn times(folder: &Path) -> Vec<u64> {
    let (recording, _) = Recording::open(folder).expect("it is there");
    let read = recording.between(0..u64::MAX);
    read.map(|one| one.expect("it is whole").unix_ns).collect()
}

const DAY: Duration = Duration::from_hours(24);

#[test]
fn bytes_stay_below_their_limit() {
    const MAX_BYTES: u64 = 64 << 10;
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = limited(folder.path(), MAX_BYTES, DAY);
    let mut snapshot = fixture::snapshot();
    let mut most = 0;
    for index in 0..1000 {
        snapshot
            .vms
            .iter_mut()
            .for_each(|vm| run(vm, 12_345_678 + index as u64));
        recorder
            .record(&snapshot, at(index))
            .expect("there is room");
        most = most.max(bytes(folder.path()));
        assert_eq!(recorder.bytes(), bytes(folder.path()));
    }
    assert!(most <= MAX_BYTES, "{most} bytes");
    assert!(most > MAX_BYTES / 2, "{most} bytes: the limit is used");
    let kept = times(folder.path());
    let first = kept[0];
    let expected: Vec<u64> = (0..1000).map(at).filter(|time| *time >= first).collect();
    assert_eq!(kept, expected, "the oldest went first, and none between");
}

#[test]
fn readings_of_earlier_agents_count_too() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut before = recorder(folder.path());
    for index in 0..200 {
        before
            .record(&fixture::snapshot(), at(index))
            .expect("there is room");
    }
    drop(before);
    let all = bytes(folder.path());
    let mut recorder = limited(folder.path(), all / 2, DAY);
    recorder
        .record(&fixture::snapshot(), at(200))
        .expect("there is room");
    assert!(bytes(folder.path()) <= all / 2);
    assert_eq!(times(folder.path()).last(), Some(&at(200)));
}

#[test]
fn old_readings_go_with_their_segment() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = limited(folder.path(), 1 << 30, Duration::from_mins(5));
    for index in 0..1000 {
        recorder
            .record(&fixture::snapshot(), at(index))
            .expect("there is room");
    }
    let kept = times(folder.path());
    let age_s = (at(999) - kept[0]) / 1_000_000_000;
    // A segment is two minutes long here, and goes when the next one begins.
    assert!((300..=300 + 2 * 128).contains(&age_s), "{age_s} s");
}

#[test]
fn clock_that_jumps_does_not_remove_the_recording() {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = limited(folder.path(), 1 << 30, Duration::from_hours(1));
    for index in 0..640 {
        recorder
            .record(&fixture::snapshot(), at(index))
            .expect("there is room");
    }
    let years = 500_000_000;
    recorder
        .record(&fixture::snapshot(), at(years))
        .expect("there is room");
    for index in 641..700 {
        recorder
            .record(&fixture::snapshot(), at(index))
            .expect("there is room");
    }
    let kept = times(folder.path());
    assert!(kept.len() >= 640 - 2 * 128, "{} of 700", kept.len());
    let (recording, _) = Recording::open(folder.path()).expect("it is there");
    let found = recording
        .at(at(690))
        .expect("it is whole")
        .expect("there is one");
    assert_eq!(found.unix_ns, at(690));
    assert_eq!(recording.between(at(650)..at(660)).count(), 10);
}

#[test]
fn second_recorder_is_refused() {
    let folder = tempfile::tempdir().expect("there is room");
    let first = recorder(folder.path());
    let limits = Limits {
        max_bytes: 1 << 20,
        max_age: DAY,
    };
    let open = || Recorder::open(folder.path(), limits.clone(), "node-a", "0.1.0", None);
    assert!(matches!(open(), Err(Failure::Busy(_))));
    drop(first);
    assert!(open().is_ok());
}

#[test]
fn directory_that_is_a_file_is_an_error() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("there is room");
    let limits = Limits {
        max_bytes: 1 << 20,
        max_age: DAY,
    };
    let refused = Recorder::open(&file, limits, "node-a", "0.1.0", None);
    assert!(matches!(refused, Err(Failure::Disk { .. })));
}

#[test]
fn only_the_owner_may_read_a_recording() {
    let parent = tempfile::tempdir().expect("there is room");
    let folder = parent.path().join("all/records");
    let mut recorder = limited(&folder, 1 << 30, DAY);
    let recorded = recorder.record(&fixture::snapshot(), at(0));
    recorded.expect("there is room");
    let mode = |path: &Path| {
        let about = fs::metadata(path).expect("it is there");
        about.permissions().mode() & 0o777
    };
    assert_eq!(mode(&folder), 0o700);
    let files = fs::read_dir(&folder).expect("it is there");
    let modes: Vec<u32> = files
        .map(|file| mode(&file.expect("it can be read").path()))
        .collect();
    assert_eq!(modes, [0o600; 2], "the lock and a segment");
}

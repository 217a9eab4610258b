//! Files that are cut off, damaged, foreign or written by a later version.

use std::fs;
use std::path::{Path, PathBuf};

use virtlens_model::snapshot::Snapshot;
use virtlens_record::{Recording, Refused};
use virtlens_tests::fixture;

use crate::moving::{at, recorder, run};

const READINGS: usize = 8;

/// Some readings, and the file of their segment.
fn recorded(folder: &Path) -> (Vec<Snapshot>, PathBuf) {
    let mut recorder = recorder(folder);
    let mut snapshot = fixture::snapshot();
    let readings: Vec<Snapshot> = (0..READINGS)
        .map(|index| {
            snapshot.vms.iter_mut().for_each(|vm| run(vm, 12_345_678));
            recorder
                .record(&snapshot, at(index))
                .expect("there is room");
            snapshot.clone()
        })
        .collect();
    (readings, folder.join("0000000000000000.vlrec"))
}

/// The readings of a file, and whether a rest was reported as lost.
fn read(file: &Path) -> Result<(Vec<Snapshot>, bool), Option<Refused>> {
    let (recording, mut refused) = Recording::open(file).expect("it is there");
    if let Some(refused) = refused.pop() {
        return Err(Some(refused));
    }
    let mut readings = Vec::new();
    for one in recording.between(0..u64::MAX) {
        match one {
            Ok(recorded) => readings.push(recorded.snapshot),
            Err(_) => return Ok((readings, true)),
        }
    }
    Ok((readings, false))
}

#[test]
fn cut_off_file_has_all_readings_before_the_cut() {
    let folder = tempfile::tempdir().expect("there is room");
    let (readings, file) = recorded(folder.path());
    let whole = fs::read(&file).expect("it is there");
    let cut = folder.path().join("cut");
    let mut most = 0;
    for len in (0..whole.len()).step_by(7) {
        fs::write(&cut, &whole[..len]).expect("there is room");
        let Ok((found, _)) = read(&cut) else {
            assert!(
                (1..200).contains(&len),
                "the header was cut off, not {len} bytes"
            );
            continue;
        };
        assert!(found.len() >= most, "{len} bytes");
        most = found.len();
        assert_eq!(found, readings[..most], "{len} bytes");
    }
    assert_eq!(most, READINGS - 1);
    assert_eq!(read(&file).expect("it is whole"), (readings, false));
}

#[test]
fn damaged_file_has_the_readings_before_the_damage() {
    let folder = tempfile::tempdir().expect("there is room");
    let (readings, file) = recorded(folder.path());
    let whole = fs::read(&file).expect("it is there");
    let damaged = folder.path().join("damaged");
    for at in (0..whole.len()).step_by(5) {
        let mut content = whole.clone();
        content[at] ^= 1 << (at % 8);
        fs::write(&damaged, &content).expect("there is room");
        if let Ok((found, is_lost)) = read(&damaged) {
            assert!(
                is_lost || found.is_empty(),
                "the damage at {at} was not found"
            );
            assert_eq!(found, readings[..found.len()], "damage at {at}");
        }
    }
}

#[test]
fn later_agent_continues_behind_a_cut_off_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let (_, file) = recorded(folder.path());
    let whole = fs::read(&file).expect("it is there");
    fs::write(&file, &whole[..whole.len() - 3]).expect("there is room");
    let mut recorder = recorder(folder.path());
    recorder
        .record(&fixture::snapshot(), at(100))
        .expect("there is room");
    let (recording, refused) = Recording::open(folder.path()).expect("it is there");
    assert!(refused.is_empty());
    let all: Vec<_> = recording.between(0..u64::MAX).collect();
    let whole = all.iter().filter(|one| one.is_ok()).count();
    assert_eq!((whole, all.len()), (READINGS, READINGS + 1));
}

/// An agent that is killed between the creation of a file and its header leaves an empty one.
#[test]
fn empty_segment_is_not_a_loss() {
    let folder = tempfile::tempdir().expect("there is room");
    let (readings, _) = recorded(folder.path());
    let empty = folder.path().join("0000000000000001.vlrec");
    fs::write(&empty, "").expect("there is room");
    let (recording, refused) = Recording::open(folder.path()).expect("it is there");
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(recording.between(0..u64::MAX).count(), readings.len());
    let mut recorder = recorder(folder.path());
    let recorded = recorder.record(&fixture::snapshot(), at(100));
    recorded.expect("there is room");
    let (recording, _) = Recording::open(folder.path()).expect("it is there");
    assert_eq!(recording.between(0..u64::MAX).count(), readings.len() + 1);
}

#[test]
fn foreign_files_are_refused() {
    let folder = tempfile::tempdir().expect("there is room");
    for content in ["virtlens-record\n", "# HELP virtlens_vm_info", "x"] {
        let file = folder.path().join("foreign");
        fs::write(&file, content).expect("there is room");
        let Err(Some(refused)) = read(&file) else {
            panic!("{content:?} is not a recording");
        };
        assert!(matches!(refused, Refused::Foreign(_)), "{refused}");
    }
}

#[test]
fn file_of_another_format_names_its_version() {
    for format in [2, 4] {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("other");
        let text = format!(
            r#"{{"format":{format},"version":"9.1.0","node":"n","boot_id":null,"more":1}}"#
        );
        let mut content = b"virtlens-record\n".to_vec();
        let len = u32::try_from(text.len())
            .expect("it is short")
            .to_le_bytes();
        let mut hasher = crc32fast::Hasher::new();
        for part in [&len[..], &[0; 16], text.as_bytes()] {
            hasher.update(part);
        }
        content.extend(len);
        content.extend(hasher.finalize().to_le_bytes());
        content.extend([0; 16]);
        content.extend(text.as_bytes());
        fs::write(&file, content).expect("there is room");
        let Err(Some(refused)) = read(&file) else {
            panic!("it has another format");
        };
        let text = refused.to_string();
        let expected =
            format!("has format {format}; this version reads format 3: use virtlens 9.1.0");
        assert!(text.ends_with(&expected), "{text}");
    }
}

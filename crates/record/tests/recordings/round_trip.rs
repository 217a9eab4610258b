//! What is read equals what was recorded.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use virtlens_model::snapshot::{Snapshot, Thread, Vcpu, Vm};
use virtlens_record::{Mark, Recorded, Recording};
use virtlens_tests::fixture;

use crate::moving::{at, readings, recorder, run};

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

/// Records readings: the bytes of each, and the readings of the recording.
fn record(readings: &[Snapshot]) -> (Vec<u64>, Vec<Snapshot>) {
    let folder = tempfile::tempdir().expect("there is room");
    let mut recorder = recorder(folder.path());
    let readings = readings.iter().enumerate();
    let bytes = readings.map(|(index, reading)| recorder.record(reading, at(index)));
    let bytes = bytes.collect::<Result<_, _>>().expect("there is room");
    let (recording, refused) = Recording::open(folder.path()).expect("it is there");
    assert!(refused.is_empty());
    let read = recording.between(0..u64::MAX);
    let read = read.map(|one| one.map(|one| one.snapshot));
    (bytes, read.collect::<Result<_, _>>().expect("it is whole"))
}

/// The pointers to all numbers and unknown values of a JSON value.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) | Value::Null => found.push(at.to_owned()),
        Value::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                pointers(one, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(all) => {
            for (name, one) in all {
                pointers(one, &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn each_number_of_a_vm_keeps_its_name() {
    let mut vm = serde_json::to_value(&fixture::snapshot().vms[0]).expect("it has names");
    let mut all = Vec::new();
    pointers(&vm, "", &mut all);
    let mut numbered = 0;
    for (number, pointer) in (1000..).zip(&all) {
        let mut changed = vm.clone();
        *changed.pointer_mut(pointer).expect("it was found") = number.into();
        // Some numbers have a meaning, and some unknown values are no numbers.
        let Ok(parsed) = serde_json::from_value::<Vm>(changed) else {
            continue;
        };
        let changed = serde_json::to_value(parsed).expect("it has names");
        if changed.pointer(pointer) == Some(&number.into()) {
            vm = changed;
            numbered += 1;
        }
    }
    assert!(numbered > 150, "{numbered} of {} numbers", all.len());
    let vm: Vm = serde_json::from_value(vm).expect("it was parsed before");
    let reading = Snapshot {
        vms: vec![vm],
        ..fixture::snapshot()
    };
    let (_, read) = record(std::slice::from_ref(&reading));
    assert_eq!(read, [reading]);
}

/// Readings of a node of 60 VMs, whose counters rise by `step` of the reading and of the VM.
fn node(count: u64, step: impl Fn(u64, u64) -> u64) -> Vec<Snapshot> {
    let mut snapshot = fixture::snapshot();
    let vm = snapshot.vms.remove(0);
    snapshot.vms = (0..60).map(|pid| Vm { pid, ..vm.clone() }).collect();
    let next = |reading| {
        for (vm, number) in snapshot.vms.iter_mut().zip(0..) {
            vm.vm = Arc::from(format!("vm-{number}"));
            run(vm, step(reading, number));
        }
        snapshot.clone()
    };
    (0..count).map(next).collect()
}

#[test]
fn counters_of_steady_rates_take_few_bytes() {
    let (bytes, _) = record(&node(8, |_, vm| 1_000_000 + 7919 * vm));
    // The first is complete, and in two more the rates are unknown.
    assert!(bytes[1] > 2000, "{bytes:?}");
    assert!(bytes[4..].iter().all(|bytes| *bytes < 400), "{bytes:?}");
}

#[test]
fn counters_that_change_their_rates_round_trip() {
    // Steady, then at rest, then by chance, then steady again.
    let step = |reading, vm| match reading {
        0..6 => 1_000_000 + 7919 * vm,
        6..12 => 0,
        12..20 => (reading * 2_654_435_761 + vm * 40_503) % 1_000_003 * (reading % 3),
        _ => 5_000_000_000 + vm,
    };
    let readings = node(28, step);
    let (_, read) = record(&readings);
    assert!(read == readings);
}

/// Readings of a VM of 40 vCPUs. Each thread ran longer than its vCPU by `more` of the reading and
/// of the thread.
fn threads(more: impl Fn(u64, u32) -> u64) -> Vec<Snapshot> {
    let mut snapshot = fixture::snapshot();
    snapshot.vms.truncate(1);
    let reading = |reading: u64| {
        let vm = &mut snapshot.vms[0];
        let ids = 0..40_u32;
        // Their order is not that of the vCPUs.
        let tid = |id| 1000 + id * 7 % 40;
        let ran_ns = |id: u32| reading * 1_000_003 * u64::from(id) % 777_777_777;
        let vcpu = vm.vcpus[0].clone();
        let vcpus = ids.clone().map(|id| Vcpu {
            id,
            tid: (id != 5).then(|| tid(id)),
            cpu_ns: ran_ns(id),
            wait_ns: (id != 6).then(|| ran_ns(id + 1)),
            pcpu: (id != 7).then(|| (id + u32::try_from(reading).expect("it is small")) % 16),
            ..vcpu.clone()
        });
        vm.vcpus = vcpus.collect();
        let thread = vm.threads[0].clone();
        let threads = ids.map(|id| Thread {
            tid: tid(id),
            cpu_ns: ran_ns(id) + more(reading, id),
            wait_ns: (id != 8).then(|| ran_ns(id + 1) + more(reading, id)),
            ..thread.clone()
        });
        vm.threads = threads.collect();
        snapshot.clone()
    };
    (1..10).map(reading).collect()
}

#[test]
fn time_of_a_vcpu_and_its_thread_is_written_once() {
    let of = |more: fn(u64, u32) -> u64| {
        let readings = threads(more);
        let (bytes, read) = record(&readings);
        assert!(read == readings, "a reading is another one");
        bytes.iter().skip(1).sum::<u64>()
    };
    let by_chance = |reading, id: u32| reading * 7_777_777 * u64::from(id) % 1_000_003;
    let (equal, other) = (of(|_, _| 0), of(by_chance));
    assert!(equal * 4 < other * 3, "{equal} and {other} bytes");
}

//! Pressure of a pod's cgroup, compared with its pressure files.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use virtlens_model::vocab::Pressure;
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, Reader};

/// The files of the resources, and whether each kernel has them.
const FILES: [(&str, bool); 4] = [
    ("cpu", true),
    ("memory", true),
    ("io", true),
    ("irq", false),
];

/// Stall times in a pod's pressure files, ns, by resource and kind. A reading of a file
/// also makes the kernel sum up the counters of all CPUs.
fn read_files(reader: &Reader, pod: &Pod) -> Vec<(&'static str, String, u64)> {
    let folder = reader.scenario.cgroup_root.join(&pod.pod_cgroup);
    let mut stalls = Vec::new();
    for (resource, is_required) in FILES {
        let Ok(text) = fs::read_to_string(folder.join(format!("{resource}.pressure"))) else {
            assert!(!is_required, "{resource}.pressure can be read");
            continue;
        };
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("a kind and its numbers");
            let (_, total) = rest.rsplit_once("total=").expect("a total");
            let us: u64 = total.parse().expect("a number");
            stalls.push((resource, kind.to_owned(), us * 1000));
        }
    }
    stalls
}

fn pressure(reader: &mut Reader, pod: &Pod) -> Pressure {
    let snapshot = reader.read();
    let vm = pods::vm(&snapshot, pod);
    vm.pressure.expect("the kernel counts pressure")
}

/// The kernel updates the counters when a file is read, and by itself every 2 s: a reading
/// right after the files lies between two readings of the files.
fn assert_between_files(reader: &mut Reader, pod: &Pod) {
    let before = read_files(reader, pod);
    let shown = pressure(reader, pod);
    let after = read_files(reader, pod);
    println!("{shown:?}");
    for (resource, kind, ns) in shown.by_name() {
        let of = |files: &[(&str, String, u64)]| {
            let mut files = files.iter();
            let file = files.find(|(one, its, _)| *one == resource && its == kind);
            file.map(|(_, _, ns)| *ns)
        };
        let (low, high) = (of(&before), of(&after));
        // 5.10 has no full stalls on CPU; its file shows none either. The file of later
        // kernels shows no stalls by interrupts where they are not measured.
        if ns.is_none() && resource == "irq" {
            assert_eq!(high.unwrap_or(0), 0, "{resource} {kind}");
            continue;
        }
        assert_eq!(low.is_some(), ns.is_some(), "{resource} {kind}: {before:?}");
        if let (Some(low), Some(ns), Some(high)) = (low, ns, high) {
            // A file has a resolution of 1 µs.
            let range = low..=high + 999;
            assert!(range.contains(&ns), "{resource} {kind}: {ns} in {range:?}");
        }
    }
}

#[test]
fn pressure_equals_pressure_files_of_pod() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    assert_between_files(&mut reader, &pod);
    let idle = pressure(&mut reader, &pod);
    // Two busy vCPUs on 0.3 cores are stalled by their limit most of the time.
    reader.scenario.start("cpu").expect("the load starts");
    reader.with_quota(&pod, 30_000, |_| sleep(Duration::from_secs(5)));
    reader.scenario.stop("cpu").expect("the load stops");
    for _ in 0..5 {
        assert_between_files(&mut reader, &pod);
    }
    let stalled = pressure(&mut reader, &pod);
    let since = stalled.cpu.some_ns.expect("known") - idle.cpu.some_ns.expect("known");
    println!("stalled on CPU for {} ms", pods::millis(since));
    assert!(since > 1_000_000_000, "{since} ns of 5 s");
}

/// Without a reader of the files the values are at most some seconds old while tasks of
/// the pod run.
#[test]
fn pressure_is_updated_without_a_reader_of_its_files() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    reader.scenario.start("cpu").expect("the load starts");
    reader.with_quota(&pod, 30_000, |reader| {
        let first = pressure(reader, &pod).cpu.some_ns.expect("known");
        virtlens_tests::eventually("the kernel updates the pressure", || {
            let now = pressure(reader, &pod).cpu.some_ns.expect("known");
            (now > first).then_some(())
        });
    });
    reader.scenario.stop("cpu").expect("the load stops");
}

//! What the doctor finds of real pods: at rest, at their limit, flooded.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::Duration;

use virtlens::collect::Options;
use virtlens_model::finding::Bounds;
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, Reader};

const WINDOW: Duration = Duration::from_secs(4);

/// More than the machine has, µs in 100 ms: no limit, but the pod has one.
const AMPLE_US: u64 = 400_000;

/// The study's limit and overhead, µs in 100 ms.
const STUDY_US: u64 = 125_000;

/// The checks that are raised for a pod, under these loads and this limit.
fn found(reader: &mut Reader, pod: &Pod, loads: &[&str], quota_us: u64) -> BTreeSet<&'static str> {
    for load in loads {
        reader.scenario.start(load).expect("the load starts");
    }
    let snapshot = reader.with_quota(pod, quota_us, |reader| {
        // Until all loads are at work, and the limit has got hold of them.
        sleep(Duration::from_secs(1));
        reader.judge();
        sleep(WINDOW);
        reader.judge()
    });
    for load in loads {
        reader.scenario.stop(load).expect("the load stops");
    }
    let findings = pods::vm(&snapshot, pod).findings.clone();
    let findings = findings.expect("it was judged");
    println!("{loads:?}: {} findings", findings.len());
    for finding in findings.iter() {
        println!("{loads:?} {}: {}", finding.check.name(), finding.evidence);
    }
    findings.iter().map(|one| one.check.name()).collect()
}

/// What is expected of a pod whose vhost worker is at work, wherever that sits.
fn with_vhost(pod: &Pod, expected: &[&'static str]) -> BTreeSet<&'static str> {
    let outside = Reader::vhost_outside(pod).map(|_| "threads_outside_pod");
    expected.iter().copied().chain(outside).collect()
}

#[test]
fn nothing_is_found_of_pods_at_rest() {
    let mut reader = Reader::new();
    let pods: Vec<Pod> = reader.scenario.pods.values().cloned().collect();
    for pod in pods {
        assert_eq!(found(&mut reader, &pod, &[], AMPLE_US), BTreeSet::new());
    }
}

/// 1.25 cores for two vCPUs, vhost and virtiofsd, which all want more.
#[test]
fn the_capped_pod_is_found_to_be_capped() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let mut found = found(&mut reader, &pod, &["vhost", "virtiofs", "cpu"], STUDY_US);
    // The machine has two CPUs for all of this and for those who make the load.
    found.remove("vcpu_starved");
    let expected = ["io_throttled", "quota_capped", "vcpus_exceed_quota"];
    assert_eq!(found, with_vhost(&pod, &expected));
}

/// A guest that is emulated twice takes packets so slowly that its worker never
/// comes near the end of its core; so the end is set to where it comes. Whether it
/// is half of what such a VM uses is then decided by a hair, and another check's.
#[test]
fn a_flooded_vhost_worker_is_found_to_be_saturated() {
    let mut reader = Reader::with(&Options {
        bounds: Bounds {
            vhost_busy: 0.04,
            overhead: 1.0,
            ..Bounds::default()
        },
        ..Options::default()
    });
    let pod = reader.named().clone();
    let found = found(&mut reader, &pod, &["vhost"], AMPLE_US);
    assert_eq!(found, with_vhost(&pod, &["vhost_saturated"]));
}

//! What the doctor finds of real pods: at rest, at their limit, flooded.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtlens_tests::{Minivm, TestCgroup, process, systemd_pod_path, unique_pod_uid};
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, Reader};

const WINDOW: Duration = Duration::from_secs(4);

/// More than the machine has, µs in 100 ms: no limit, but the pod has one.
const AMPLE_US: u64 = 400_000;

/// The study's limit and overhead, µs in 100 ms.
const STUDY_US: u64 = 125_000;

/// The checks that are raised for the VM of a process by what it does from now on.
fn found_of(reader: &mut Reader, pid: u32) -> BTreeSet<&'static str> {
    reader.judge();
    sleep(WINDOW);
    let findings = pods::vm_of(&reader.judge(), pid).findings.clone();
    let findings = findings.expect("it was judged");
    for finding in findings.iter() {
        println!("{}: {}", finding.check.name(), finding.evidence);
    }
    findings.iter().map(|one| one.check.name()).collect()
}

/// The checks that are raised for a pod, under these loads and this limit.
fn found(reader: &mut Reader, pod: &Pod, loads: &[&str], quota_us: u64) -> BTreeSet<&'static str> {
    for load in loads {
        reader.scenario.start(load).expect("the load starts");
    }
    println!("{loads:?}");
    let found = reader.with_quota(pod, quota_us, |reader| {
        // Until all loads are at work, and the limit has got hold of them.
        sleep(Duration::from_secs(1));
        found_of(reader, pod.vmm_pid)
    });
    for load in loads {
        reader.scenario.stop(load).expect("the load stops");
    }
    found
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
    // The machine has two CPUs for all of this and for those who make the load: how
    // long vCPUs wait, and whether a worker elsewhere gets enough to be told, is luck.
    found.remove("vcpu_starved");
    found.remove("threads_outside_pod");
    let expected = ["io_throttled", "quota_capped", "vcpus_exceed_quota"];
    assert_eq!(found, BTreeSet::from(expected));
}

/// A worker whose ring never runs dry takes a CPU for itself. The machine has two:
/// to use as much as that and not wait, a guest would need all of the other. So it
/// rests, and that all this VM uses is overhead is found, too.
#[test]
fn a_flooded_vhost_worker_is_found_to_be_saturated() {
    let pod = TestCgroup::new(&systemd_pod_path(&unique_pod_uid()));
    let container = pod.child("cri-containerd-vm.scope");
    let args = ["--vcpus", "1", "--vhost-net", "flooded"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    let pid = guest.pid();
    let worker = process::vhost_worker(pid).expect("it has a worker");
    let mut reader = Reader::new();
    assert_eq!(found_of(&mut reader, pid), BTreeSet::new());

    guest.command("flood on");
    let (began, before) = (Instant::now(), pods::times(&[worker]));
    let found = found_of(&mut reader, pid);
    let (took, used) = (
        began.elapsed(),
        pods::burned(&before, &pods::times(&[worker])),
    );
    println!(
        "the worker used {} ms of {} ms",
        pods::millis(used),
        took.as_millis()
    );
    let outside = pods::is_outside(worker.1.cast_unsigned(), &pod.path());
    let outside = outside.then_some("threads_outside_pod");
    let expected = ["overhead_high", "vhost_saturated"].into_iter();
    assert_eq!(found, expected.chain(outside).collect());

    guest.command("flood off");
    assert_eq!(found_of(&mut reader, pid), BTreeSet::new());
}

//! Findings of the doctor for real pods: at rest, at their limit, flooded.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtlens_model::judge::findings::Bounds;
use virtlens_tests::process::Schedstat;
use virtlens_tests::{Minivm, TestCgroup, process, reader, systemd_pod_path, unique_pod_uid};
use virtlens_vmtest::scenario::Pod;

use crate::pods::{self, Reader};

const WINDOW: Duration = Duration::from_secs(4);

/// A quota above the machine's CPUs, µs in 100 ms: the pod has a limit that never binds.
const AMPLE_US: u64 = 400_000;

/// The study's limit and overhead, µs in 100 ms.
const STUDY_US: u64 = 125_000;

/// The checks that are raised for the VM of a process by its activity from now on.
fn found_of(reader: &mut Reader, pid: u32) -> BTreeSet<&'static str> {
    reader.judge();
    sleep(WINDOW);
    let findings = reader::vm(&reader.judge(), pid).findings.clone();
    let findings = findings.expect("it was judged");
    for finding in findings.iter() {
        println!("{}: {}", finding.check.name(), finding.evidence);
    }
    findings.iter().map(|one| one.check.name()).collect()
}

/// Margin, as a share of the time: a finding is asserted only where the kernel's counters
/// exceed the bound by it, because they are read slightly before and after the agent's.
const NEAR: f64 = 0.02;

/// The kernel's counters of a pod. They decide which checks are raised when the machine
/// has too little CPU for all.
struct Truth {
    read: Instant,
    /// Of each vCPU.
    vcpus: Vec<Schedstat>,
    throttled_ns: u64,
    /// CPU time of the threads under the limit, ns.
    used_ns: u64,
    /// CPU time of the vhost workers outside of the pod, ns.
    outside_ns: u64,
}

impl Truth {
    fn read(reader: &mut Reader, pod: &Pod) -> Self {
        let vcpu = |tid: &u32| Schedstat::read(pod.vmm_pid, tid.cast_signed());
        let vcpus = pod.vcpu_tids.iter();
        Self {
            read: Instant::now(),
            vcpus: vcpus.map(|tid| vcpu(tid).expect("it lives")).collect(),
            throttled_ns: pods::throttled_wall_ns(&reader.read(), pod),
            used_ns: reader.limited_ns(pod),
            outside_ns: Reader::vhost_outside_ns(pod),
        }
    }

    /// Whether the pod was at its limit since then: its use was near the quota, and it
    /// was throttled.
    fn is_capped(&self, quota_us: u64, since: &Self) -> bool {
        let took = self.read - since.read;
        let share = |now: u64, then: u64| Duration::from_nanos(now - then).div_duration_f64(took);
        let limit = Duration::from_micros(quota_us).div_duration_f64(Duration::from_millis(100));
        let used = share(self.used_ns, since.used_ns) / limit;
        let throttled = share(self.throttled_ns, since.throttled_ns);
        println!("by the kernel: {used:.3} of its limit used, throttled for {throttled:.3}");
        let bounds = Bounds::default();
        used > bounds.quota_used + NEAR && throttled > bounds.quota_throttled + NEAR
    }

    fn vcpus_ns(&self) -> u64 {
        self.vcpus.iter().map(|vcpu| vcpu.cpu_ns).sum()
    }

    /// Compares the findings with the kernel's counters since then. A check that they
    /// decide must be raised, or must not be, unless the counters are near its threshold.
    fn check(&self, since: &Self, found: &mut BTreeSet<&'static str>) {
        let took = self.read - since.read;
        let throttled_ns = self.throttled_ns - since.throttled_ns;
        let waited = self.vcpus.iter().zip(&since.vcpus);
        let waited = waited.map(|(now, then)| now.wait_ns - then.wait_ns);
        let starved_ns = waited.max().expect("it has vCPUs");
        let starved_ns = starved_ns.saturating_sub(throttled_ns);
        let outside_ns = self.outside_ns - since.outside_ns;
        let all_ns = self.used_ns - since.used_ns + outside_ns;
        let others_ns = all_ns.saturating_sub(self.vcpus_ns() - since.vcpus_ns());
        let cores = |ns| Duration::from_nanos(ns).div_duration_f64(took);
        let bounds = Bounds::default();
        // QEMU may work for a guest at rest. This check has two bounds.
        let share = cores(others_ns) / cores(all_ns).max(f64::MIN_POSITIVE);
        let others = (cores(others_ns) / bounds.overhead_cores).min(share / bounds.overhead);
        for (check, share, bound) in [
            ("vcpu_starved", cores(starved_ns), bounds.vcpu_wait),
            (
                "threads_outside_pod",
                cores(outside_ns),
                bounds.outside_cores,
            ),
            ("overhead_high", others, 1.0),
        ] {
            println!("by the kernel: {share:.3} of {bound} for {check}");
            let is_found = found.remove(check);
            assert!(is_found || share < bound * 1.2, "{check} is not raised");
            assert!(!is_found || share > bound * 0.8, "{check} is raised");
        }
    }
}

/// The checks that are raised for a pod under these loads and this limit, without those
/// that [`Truth`] decides; and whether the limit held the pod back.
fn found(
    reader: &mut Reader,
    pod: &Pod,
    loads: &[&str],
    quota_us: u64,
) -> (BTreeSet<&'static str>, bool) {
    for load in loads {
        reader.scenario.start(load).expect("the load starts");
    }
    println!("{loads:?}");
    let found = reader.with_quota(pod, quota_us, |reader| {
        // Until all loads are running and the limit throttles them.
        sleep(Duration::from_secs(1));
        let began = Truth::read(reader, pod);
        let mut found = found_of(reader, pod.vmm_pid);
        let ended = Truth::read(reader, pod);
        ended.check(&began, &mut found);
        (found, ended.is_capped(quota_us, &began))
    });
    for load in loads {
        reader.scenario.stop(load).expect("the load stops");
    }
    found
}

#[test]
fn idle_pods_have_no_findings() {
    let mut reader = Reader::new();
    let pods: Vec<Pod> = reader.scenario.pods.values().cloned().collect();
    for pod in pods {
        let (found, _) = found(&mut reader, &pod, &[], AMPLE_US);
        assert_eq!(found, BTreeSet::new());
    }
}

/// 1.25 cores for two vCPUs, vhost and virtiofsd, which together want more.
#[test]
fn capped_pod_is_found() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    // If the machine's two CPUs are busy, they may hold the pod back instead: retry, with a
    // lower limit.
    for quota_us in [STUDY_US, STUDY_US, 110_000, 100_000, 90_000] {
        let loads = ["vhost", "virtiofs", "cpu"];
        let (found, is_capped) = found(&mut reader, &pod, &loads, quota_us);
        if is_capped {
            let expected = ["io_throttled", "quota_capped", "vcpus_exceed_quota"];
            assert_eq!(found, BTreeSet::from(expected));
            return;
        }
    }
    panic!("this machine does not let the pod use what its limit allows");
}

/// A worker whose ring never runs empty takes a CPU for itself. The machine has two: a
/// guest would need all of the other one to use as much without waiting. So the guest is
/// idle, and the finding that this VM's use is all overhead is expected as well.
#[test]
fn flooded_vhost_worker_is_found_saturated() {
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

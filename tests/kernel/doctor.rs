//! Findings of the doctor for VMs with one problem each and for a healthy one: exactly
//! the expected findings.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use virtlens::collect::Collector;
use virtlens_model::snapshot::Vm;
use virtlens_tests::process::{burn, set_affinity};
use virtlens_tests::reader::{self, find, vm};
use virtlens_tests::{
    Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

const WINDOW: Duration = Duration::from_secs(2);

const QEMU: &str = "qemu-system-x86_64";

/// Findings for a VM over a window that begins once all its vCPUs are known.
fn diagnosed(guest: &Minivm) -> Vm {
    let mut collector = reader::collector();
    let vcpus = guest.ready.vcpus.len();
    eventually("the agent to find all vCPUs", || {
        let snapshot = collector.collect();
        let there = find(&snapshot, guest.pid())?.vcpus.iter();
        (there.filter(|vcpu| vcpu.tid.is_some()).count() == vcpus).then_some(())
    });
    judge(&mut collector, guest)
}

fn judge(collector: &mut Collector, guest: &Minivm) -> Vm {
    collector.collect_judged();
    sleep(WINDOW);
    vm(&collector.collect_judged(), guest.pid()).clone()
}

/// Fails unless these checks are raised, in any order.
#[track_caller]
fn assert_found(vm: &Vm, expected: &[&str]) {
    let found = vm.findings.as_deref().expect("it was judged");
    for finding in found {
        println!("{}: {}", finding.check.name(), finding.evidence);
    }
    let mut names: Vec<&str> = found.iter().map(|one| one.check.name()).collect();
    names.sort_unstable();
    assert_eq!(names, expected, "{found:#?}");
}

#[test]
fn healthy_vm_has_no_findings() {
    if !reader::ready("healthy_vm_has_no_findings") {
        return;
    }
    let args = ["--vcpus", "2", "--start", "duty:20", "--thread", "worker=4"];
    assert_found(&diagnosed(&Minivm::start(args)), &[]);
}

#[test]
fn spinning_only_vcpu_is_saturated() {
    if !reader::ready("spinning_only_vcpu_is_saturated") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "spin"]);
    assert_found(&diagnosed(&guest), &["vcpus_saturated"]);
}

/// A flag that is set when the guard is dropped.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A busy host: another thread competes for the vCPU's only CPU.
#[test]
fn vcpu_on_shared_cpu_is_starved() {
    if !reader::ready("vcpu_on_shared_cpu_is_starved") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "1", "--start", "spin"]);
    set_affinity(guest.ready.vcpus[0].tid, &[0]);
    let is_over = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| {
            set_affinity(0, &[0]);
            while !is_over.load(Ordering::Relaxed) {
                burn(Duration::from_millis(9));
                sleep(Duration::from_millis(1));
            }
        });
        // Also set on a panic, because the scope waits for the other thread.
        let _over = Raised(&is_over);
        assert_found(&diagnosed(&guest), &["vcpu_starved"]);
    });
}

/// The vCPU polls nine tenths of the time for work that comes at the end of them.
#[test]
fn vcpu_that_polls_between_tasks_is_found() {
    if !reader::ready("vcpu_that_polls_between_tasks_is_found") {
        return;
    }
    let args = [
        "--vcpus",
        "1",
        "--start",
        "duty:10",
        "--halt-poll-us",
        "20000",
    ];
    assert_found(&diagnosed(&Minivm::start(args)), &["halt_poll_spin"]);
}

#[test]
fn pod_at_its_limit_is_capped() {
    let test = "pod_at_its_limit_is_capped";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(100_000), 100_000);
    let args = ["--vcpus", "2", "--start", "spin"];
    let guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    assert_found(&diagnosed(&guest), &["quota_capped", "vcpus_exceed_quota"]);
    pod.set_quota(None, 100_000);
    assert_found(&diagnosed(&guest), &["vcpus_saturated"]);
}

#[test]
fn busy_vmm_is_found_as_overhead() {
    if !reader::ready("busy_vmm_is_found_as_overhead") {
        return;
    }
    let args = ["--vcpus", "1", "--thread", "device=1"];
    let mut guest = Minivm::start(args);
    let mut collector = reader::collector();
    eventually("the agent to find the VM", || {
        find(&collector.collect(), guest.pid()).map(|_| ())
    });
    collector.collect_judged();
    guest.burn_threads("all", 1000);
    let vm = vm(&collector.collect_judged(), guest.pid()).clone();
    assert_found(&vm, &["overhead_high"]);
}

/// QEMU's thread pool for blocking I/O, with named threads.
#[test]
fn io_through_thread_pool_is_found() {
    if !reader::ready("io_through_thread_pool_is_found") {
        return;
    }
    let qemu = |workers: &str| {
        let args = ["--vcpus", "1", "--thread", workers];
        Minivm::start_launch(Minivm::launch().arg0(QEMU).args(args))
    };
    assert_found(&diagnosed(&qemu("worker=7")), &[]);
    assert_found(&diagnosed(&qemu("worker=8")), &["thread_pool_io"]);
}

/// Kata's Go runtime boots `default_vcpus` and plugs in more for the limit.
#[test]
fn default_vcpus_with_limit_are_found() {
    let test = "default_vcpus_with_limit_are_found";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(400_000), 100_000);
    let name = format!("sandbox-{}", "5e".repeat(32));
    let kata = |boot: &str| {
        let args = ["--vcpus", "3", "--smp", boot, "--name", &name];
        Minivm::start_launch(Minivm::launch().arg0(QEMU).args(args).cgroup(&pod))
    };
    assert_found(&diagnosed(&kata("3")), &[]);
    assert_found(&diagnosed(&kata("2")), &["default_vcpus_with_limit"]);
}

/// All of its RAM was touched once, and it has no balloon that could give it back.
#[test]
fn idle_vm_without_memory_release_is_found() {
    if !reader::ready("idle_vm_without_memory_release_is_found") {
        return;
    }
    let args = ["--vcpus", "1", "--mem", "1G"];
    let mut guest = Minivm::start_launch(Minivm::launch().arg0(QEMU).args(args));
    guest.command("touch 0 700M");
    assert_found(&diagnosed(&guest), &[]);
    guest.command("touch 0 1G");
    assert_found(&diagnosed(&guest), &["memory_kept"]);
}

/// As for a live migration.
#[test]
fn vm_whose_writes_are_logged_is_found() {
    if !reader::ready("vm_whose_writes_are_logged_is_found") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1", "--mem", "64M"]);
    guest.command("log firmware on");
    assert_found(&diagnosed(&guest), &[]);
    guest.command("log ram on");
    assert_found(&diagnosed(&guest), &["dirty_logging"]);
}

#[test]
fn doctor_exit_status_reports_findings() {
    if !reader::ready("doctor_exit_status_reports_findings") {
        return;
    }
    let _spins = Minivm::start(["--vcpus", "1", "--start", "spin", "--name", "spins"]);
    let _rests = Minivm::start(["--vcpus", "1", "--name", "rests"]);
    let doctor = |args: &[&str]| {
        let mut command = Command::new(binary("virtlens"));
        command.args(["doctor", "--for", "1s"]).args(args);
        command.output().expect("it starts")
    };
    let mut found = doctor(&["spins", "-o", "json"]);
    // Other load on this host may take the CPU time that a saturated vCPU needs within
    // that second, hence several attempts.
    for _ in 0..10 {
        if found.status.code() == Some(2) {
            break;
        }
        found = doctor(&["spins", "-o", "json"]);
    }
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    let json: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!(json["kind"], "Diagnosis");
    assert_eq!(json["findings"][0]["check"], "vcpus_saturated");
    assert_eq!(json["findings"][0]["vm"], "spins");
    let well = doctor(&["rests"]);
    assert_eq!(well.status.code(), Some(0), "{well:?}");
    let text = String::from_utf8(well.stdout).expect("text");
    assert!(text.contains("no findings: 1 VM, 24 checks"), "{text}");
    let unknown = doctor(&["rest"]);
    assert_eq!(unknown.status.code(), Some(1));
    let error = String::from_utf8(unknown.stderr).expect("text");
    assert!(
        error.contains("VM rest not found; the nearest name"),
        "{error}"
    );
}

//! Each system call of a reading, of a handover and of a load fails once. Later readings
//! are as correct as without the failure.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;

use virtlens::collect::{Collector, Options};
use virtlens_export::Format;
use virtlens_model::snapshot::{Snapshot, Vm};
use virtlens_tests::exposed::exposition;
use virtlens_tests::reader::{self, all_ns, find, vm};
use virtlens_tests::root::Root;
use virtlens_tests::{Minivm, Refusal, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::pinned;

/// Step between the calls that fail: a full walk takes too long on an emulated machine.
fn stride() -> usize {
    if std::env::var_os("VIRTLENS_VM").is_some() {
        13
    } else {
        1
    }
}

/// The system call by which a reading uses the kernel's BPF.
const BPF: libc::c_long = libc::SYS_bpf;

/// Step for a load, which takes a second and makes some hundred calls, most of them
/// repeated per map or program.
const LOAD_STRIDE: usize = 17;

fn failure(snapshot: &Snapshot) -> Option<&str> {
    let pass = snapshot.sources.iter().find(|one| one.name == "task_pass");
    let pass = pass.expect("it has a row");
    (!pass.up).then_some(&*pass.reason)
}

fn entries(snapshot: &Snapshot) -> BTreeMap<&'static str, u64> {
    let maps = snapshot.maps.iter();
    maps.filter_map(|fill| Some((fill.map, fill.entries?)))
        .collect()
}

/// Asserts a successful reading with the VM of `pid`, whose counters are at least
/// `least_ns`.
#[track_caller]
fn read_well(collector: &mut Collector, pid: u32, least_ns: &mut u64, after: &str) -> Vm {
    let snapshot = collector.collect();
    assert_eq!(failure(&snapshot), None, "after {after}");
    let found = vm(&snapshot, pid);
    assert!(
        all_ns(found) >= *least_ns,
        "{} of {least_ns} ns after {after}",
        all_ns(found)
    );
    *least_ns = all_ns(found);
    found.clone()
}

/// VMs start and end at each reading, and one stays.
#[test]
fn reading_with_failed_call_loses_and_leaks_nothing() {
    if !reader::ready("reading_with_failed_call_loses_and_leaks_nothing")
        || !need::all(
            "reading_with_failed_call_loses_and_leaks_nothing",
            [need::cpu_cgroup()],
        )
    {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    pod.set_quota(Some(80_000), 100_000);
    let args = [
        "--vcpus",
        "2",
        "--thread",
        "io=1",
        "--name",
        "walked-steady",
    ];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    guest.burn_vcpus("all", 20);
    let pid = guest.pid();
    // The VMs are started by threads that do not inherit the fault injection.
    let (ask, asked) = mpsc::channel::<()>();
    let (give, given) = mpsc::channel::<Minivm>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for () in asked {
                let mut passing = Minivm::start(["--vcpus", "1", "--name", "walked-passing"]);
                passing.spawn(2, 1, "gone");
                if give.send(passing).is_err() {
                    break;
                }
            }
        });
        Refusal::scope(&[BPF, libc::SYS_read, libc::SYS_openat], move |refusal| {
            let start = || {
                ask.send(()).expect("it starts VMs");
                given.recv().expect("it starts VMs")
            };
            walk_reading(refusal, &mut pinned(&root), pid, start);
        });
    });
}

fn walk_reading(
    refusal: &Refusal,
    collector: &mut Collector,
    pid: u32,
    start: impl Fn() -> Minivm,
) {
    let mut least_ns = 0;
    read_well(collector, pid, &mut least_ns, "nothing");
    let before = entries(&collector.collect());
    let mut failures = 0;
    // Few calls of a reading make it fail: a walk that steps over all of them is followed
    // by one through other calls.
    for first in (0..).take(stride()) {
        for number in (first..).step_by(stride()) {
            let passing = start();
            refusal.set(number, 1);
            let snapshot = collector.collect_judged();
            let failed = refusal.heal();
            failures += u64::from(failure(&snapshot).is_some());
            let after = format!("call {number}");
            if let Some(found) = find(&snapshot, pid) {
                let ns = all_ns(found);
                assert!(ns >= least_ns, "{ns} of {least_ns} ns with {after}");
            }
            let found = read_well(collector, pid, &mut least_ns, &after);
            assert_eq!(&*found.vm, "walked-steady", "after {after}");
            let found = collector.collect();
            assert_eq!(
                &*vm(&found, passing.pid()).vm,
                "walked-passing",
                "after {after}"
            );
            drop(passing);
            // The VM has ended, and the next one continues its counters.
            read_well(collector, pid, &mut least_ns, &after);
            if failed == 0 {
                println!("{number} calls, {failures} readings failed");
                break;
            }
        }
        if failures > 0 {
            break;
        }
    }
    assert!(failures > 0, "no reading failed");
    collector.collect();
    for (map, entries) in entries(&collector.collect()) {
        // Other processes of this machine add and remove entries in these two.
        if !["retired", "residency"].contains(&map) {
            let most = before[map];
            assert!(entries <= most, "{map}: {entries} of {most}");
        }
    }
}

/// The counters of a restarted VM include those of the VM before, which only the agent
/// before knows.
#[test]
fn handover_with_a_failed_call_loses_no_counter() {
    if !reader::ready("handover_with_a_failed_call_loses_no_counter") {
        return;
    }
    let root = Root::with_bpffs();
    let args = ["--vcpus", "1", "--name", "walked-phoenix"];
    let mut first = Minivm::start(args);
    first.burn_vcpus("all", 50);
    let mut collector = pinned(&root);
    let used_ns = all_ns(vm(&collector.collect(), first.pid()));
    drop(first);
    let again = Minivm::start(args);
    let mut least_ns = used_ns;
    let pid = again.pid();
    Refusal::scope(&[BPF], |refusal| {
        read_well(&mut collector, pid, &mut least_ns, "nothing");
        let mut collector = Some(collector);
        for number in (0..).step_by(stride()) {
            drop(collector.take());
            let next = collector.insert(pinned(&root));
            refusal.set(number, 1);
            let snapshot = next.collect();
            let failed = refusal.heal();
            let after = format!("call {number}, which made {:?}", failure(&snapshot));
            let found = read_well(next, pid, &mut least_ns, &after);
            assert_eq!(&*found.vm, "walked-phoenix", "after {after}");
            if failed == 0 {
                println!("{number} calls");
                break;
            }
        }
    });
}

/// Rates of 0 would resolve alerts, so the VMs are absent after some failures.
#[test]
fn repeatedly_failed_readings_end_series_until_success() {
    if !reader::ready("repeatedly_failed_readings_end_series_until_success") {
        return;
    }
    let root = Root::with_bpffs();
    let mut guest = Minivm::start(["--vcpus", "1", "--name", "walked-shown"]);
    guest.burn_vcpus("all", 20);
    let pid = guest.pid();
    let encoded = |snapshot: &Arc<Snapshot>| exposition(Arc::clone(snapshot), Format::OpenMetrics);
    Refusal::scope(&[BPF], |refusal| {
        let mut collector = pinned(&root);
        let mut least_ns = 0;
        read_well(&mut collector, pid, &mut least_ns, "nothing");
        let before = collector.collect();
        assert_eq!(before.reading_age_ns, Some(0));
        refusal.set(0, u64::MAX - 1);
        let failed: Vec<_> = (0..4).map(|_| collector.collect()).collect();
        refusal.heal();
        let ages: Vec<_> = failed.iter().map(|one| one.reading_age_ns).collect();
        assert!(ages.is_sorted() && ages[0] > Some(0), "{ages:?}");
        let shown = failed.iter().map(|one| find(one, pid).is_some());
        assert_eq!(shown.collect::<Vec<_>>(), [true, true, false, false]);
        for snapshot in &failed[2..] {
            let text = encoded(snapshot);
            assert!(!text.contains("vm=\""), "{text}");
            assert!(
                !text.contains("\nvirtlens_vms "),
                "unknown is absent: {text}"
            );
            assert!(text.contains("\nvirtlens_reading_age_seconds "), "{text}");
        }
        for (now, then) in failed[3].dropped.iter().zip(&before.dropped) {
            assert!(now.count >= then.count, "{now:?} after {then:?}");
        }
        read_well(&mut collector, pid, &mut least_ns, "failures");
        let text = encoded(&collector.collect());
        assert!(
            text.contains("\nvirtlens_reading_age_seconds 0.0\n"),
            "{text}"
        );
    });
}

/// Whichever call of a load fails, the agent runs, and the next agent continues the
/// counters.
#[test]
fn load_with_failed_call_does_not_affect_next_agent() {
    if !reader::ready("load_with_failed_call_does_not_affect_next_agent") {
        return;
    }
    let root = Root::with_bpffs();
    let mut guest = Minivm::start(["--vcpus", "1", "--name", "walked-loaded"]);
    guest.burn_vcpus("all", 20);
    let pid = guest.pid();
    let mut least_ns = 0;
    Refusal::scope(&[BPF], |refusal| {
        read_well(&mut pinned(&root), pid, &mut least_ns, "nothing");
        for number in (0..).step_by(LOAD_STRIDE * stride()) {
            refusal.set(number, 1);
            let options = Options {
                root: root.path().to_owned(),
                pin: true,
                ..reader::options()
            };
            let opened = Collector::open(&options);
            let failed = refusal.heal();
            let after = format!("call {number}");
            if let Ok(mut collector) = opened {
                let snapshot = collector.collect();
                // From /proc the agent sees fewer values, but no wrong ones.
                assert_eq!(&*vm(&snapshot, pid).vm, "walked-loaded", "after {after}");
            }
            read_well(&mut pinned(&root), pid, &mut least_ns, &after);
            if failed == 0 {
                println!("{number} calls");
                break;
            }
        }
    });
}

//! Programs that are attached for VMs stay attached without the agent, and are detached by an
//! agent that has seen no VM for some time.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::Snapshot;
use virtlens_tests::hooked::{hooked, idle, kept};
use virtlens_tests::reader::{self, MS, all_ns, assert_close, find, vm};
use virtlens_tests::root::{Root, TASK_STORAGE};
use virtlens_tests::{
    Minivm, Refusal, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

fn open(root: &Root, detach_after: Duration) -> Collector {
    let options = Options {
        root: root.path().to_owned(),
        pin: true,
        detach_after: Some(detach_after),
        linger: Duration::ZERO,
        ..reader::options()
    };
    Collector::open(&options).expect("the host can be read")
}

/// Shorter than `virtlens run`'s, and longer than one reading takes.
const DETACH_AFTER: Duration = Duration::from_millis(300);

/// Number of pinned objects.
fn pinned(root: &Root, part: &str) -> usize {
    let files = fs::read_dir(root.pins().join(part));
    files.expect("an agent has created it").count()
}

/// A node whose first VM starts and ends while agents come and go.
#[test]
fn pinned_links_stay_for_vms_and_go_without() {
    let test = "pinned_links_stay_for_vms_and_go_without";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let root = Root::with_bpffs();
    // Tests of this host may run beside other VMs, which end.
    let mut collector = eventually("the host has no VM", || {
        let mut collector = open(&root, DETACH_AFTER);
        let snapshot = collector.collect();
        (snapshot.vms.is_empty() && pinned(&root, "links") == 0).then_some(collector)
    });
    assert_eq!(hooked().len(), 0, "no VM, no hook");

    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let args = ["--vcpus", "1", "--thread", "io=1", "--name", "kept"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    let pid = guest.pid();
    let first = collector.collect();
    let used_before_ns = pod.usage_ns();
    let links = pinned(&root, "links");
    assert_eq!((links, pinned(&root, "programs")), (hooked().len(), links));
    assert!(links >= 3, "{links}");

    // While the VM runs they stay, with and without an agent.
    drop(collector);
    assert_eq!(pinned(&root, "links"), links);
    let spawned_ns = guest.spawn(4, 15, "passing");
    let mut collector = open(&root, DETACH_AFTER);
    assert_eq!(hooked().len(), links, "the former agent's");
    let last = reader::assert_settles(
        &mut collector,
        "its ended threads",
        spawned_ns,
        spawned_ns,
        |now| all_ns(vm(now, pid)) - all_ns(vm(&first, pid)),
    );
    assert_eq!(idle(&last).len(), 0);
    let (counted_ns, used_ns) = (
        all_ns(vm(&last, pid)) - all_ns(vm(&first, pid)),
        pod.usage_ns() - used_before_ns,
    );
    assert_close("the pod", counted_ns, used_ns, (used_ns / 200).max(20 * MS));
    assert_eq!(pinned(&root, "links"), links);

    // The VM ends without an agent. The next agent finds the links, and removes them.
    drop(collector);
    drop(guest);
    let mut collector = open(&root, DETACH_AFTER);
    let attached = hooked();
    assert_eq!(attached.len(), links, "until the time is over");
    let kept = kept(&last, &attached).len();
    let empty = eventually("the links are removed", || {
        let snapshot = collector.collect();
        (pinned(&root, "links") <= kept && hooked().len() <= kept).then_some(snapshot)
    });
    assert!(find(&empty, pid).is_none());
    assert!(pinned(&root, "programs") <= kept);
    assert!(pinned(&root, "maps") > 3, "counters of the node stay");
}

/// Without task storage the states of threads are in a hash, from which nobody removes those
/// that exit while no program is attached.
#[test]
fn hash_of_thread_states_is_empty_without_vms() {
    if !reader::ready("hash_of_thread_states_is_empty_without_vms") {
        return;
    }
    let root = Root::with_bpffs();
    root.set_knows(TASK_STORAGE, false);
    let guest = Minivm::start(["--vcpus", "2", "--name", "hashed"]);
    let mut collector = open(&root, DETACH_AFTER);
    let states = |snapshot: &Snapshot| {
        let mut maps = snapshot.maps.iter();
        let states = maps
            .find(|fill| fill.map == "marks_hash")
            .expect("it is used");
        states.entries
    };
    let filled = collector.collect_judged();
    collector.collect_judged();
    let filled = states(&filled).max(states(&collector.collect_judged()));
    assert!(filled > Some(0), "the vCPUs have states: {filled:?}");
    drop(guest);
    eventually("the programs are detached", || {
        let snapshot = collector.collect();
        (idle(&snapshot).contains("lifetime")).then_some(())
    });
    let entries = crate::pinned_map(&root, "marks_hash").expect("it is pinned");
    assert_eq!(libbpf_rs::MapCore::keys(&entries).count(), 0);
}

/// Step between the calls that fail: each takes a load of the programs.
const STRIDE: usize = 3;

/// A call of the reading that attaches or detaches programs fails. A feature is then left out
/// with its reason, or the next reading goes on; nothing stays attached for no VM.
#[test]
fn failed_call_of_attaching_or_detaching_leaves_no_half() {
    if !reader::ready("failed_call_of_attaching_or_detaching_leaves_no_half") {
        return;
    }
    let root = Root::with_bpffs();
    // The VMs are started by a thread that does not inherit the fault injection.
    let (ask, asked) = mpsc::channel::<()>();
    let (give, given) = mpsc::channel::<Minivm>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for () in asked {
                let vm = Minivm::start(["--vcpus", "1", "--name", "walked"]);
                if give.send(vm).is_err() {
                    break;
                }
            }
        });
        let calls = [libc::SYS_bpf, libc::SYS_unlink, libc::SYS_unlinkat];
        Refusal::scope(&calls, move |refusal| {
            let start = || {
                ask.send(()).expect("it starts VMs");
                given.recv().expect("it starts VMs")
            };
            walk(refusal, &root, start);
        });
    });
}

fn walk(refusal: &Refusal, root: &Root, start: impl Fn() -> Minivm) {
    for number in (0..).step_by(STRIDE) {
        let mut collector = open(root, Duration::ZERO);
        collector.collect();
        let guest = start();
        refusal.set(number, 1);
        collector.collect();
        let mut failed = refusal.heal();
        let snapshot = collector.collect();
        let found = vm(&snapshot, guest.pid());
        assert!(found.running, "after call {number}");
        let sources = snapshot.sources.iter().filter(|source| !source.up);
        let reasons: Vec<_> = sources.map(|source| &*source.reason).collect();
        let is_named = |reason: &&&str| reason.contains("cannot attach");
        println!("call {number}: {:?}", reasons.iter().find(is_named));
        assert_eq!(
            pinned(root, "links"),
            hooked().len(),
            "after call {number}: {reasons:?}"
        );
        assert!(
            hooked().contains("on_exit") || reasons.iter().any(|reason| is_named(&reason)),
            "after call {number}: {reasons:?}"
        );

        let kept = kept(&snapshot, &hooked()).len();
        drop(guest);
        refusal.set(number, 1);
        collector.collect();
        failed += refusal.heal();
        eventually("the programs are detached", || {
            collector.collect();
            (hooked().len() <= kept && pinned(root, "links") <= kept).then_some(())
        });
        if failed == 0 {
            break;
        }
    }
}

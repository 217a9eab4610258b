//! Programs of another version take over the same maps while threads end continuously.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use virtlens_tests::reader::{self, MS, all_ns, assert_close, vm};
use virtlens_tests::root::{Root, TASK_STORAGE};
use virtlens_tests::{Minivm, TestCgroup, cgroupfs_pod_path, need, unique_pod_uid};

use crate::pinned;

/// The attached links and the versions of their programs.
fn links(root: &Root) -> BTreeSet<String> {
    let files = fs::read_dir(root.pins().join("links")).expect("it is there");
    let names = files.flatten().map(|file| file.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn task_storage() -> Result<(), need::Missing> {
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let mut windows = types.windows(TASK_STORAGE.len());
    let has = windows.any(|bytes| bytes == TASK_STORAGE.as_bytes());
    need::that("task_storage", has, "the kernel is older than v5.11")
}

/// Programs that keep thread state elsewhere are of another version. All maps are reused
/// except the one with that state.
#[test]
fn programs_of_another_version_continue_same_maps() {
    let test = "programs_of_another_version_continue_same_maps";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup(), task_storage()]) {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let args = ["--vcpus", "1", "--thread", "io=1", "--name", "swapped"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&pod));
    let pid = guest.pid();
    let mut agent = pinned(&root);
    agent.collect();
    let reported_before_ns = all_ns(vm(&agent.collect(), pid));
    let mut collector = Some(agent);
    let used_before_ns = pod.usage_ns();
    let mut attached = links(&root);
    assert!(!attached.is_empty(), "its hooks are pinned");

    let is_over = AtomicBool::new(false);
    let spawned_ns: u64 = thread::scope(|scope| {
        let passing = scope.spawn(|| {
            let mut burned_ns = 0;
            // Bounded, in case the other side fails.
            for _ in 0..1000 {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                burned_ns += guest.spawn(3, 2, "passing");
            }
            burned_ns
        });
        for round in 1..=4 {
            root.set_knows(TASK_STORAGE, round % 2 == 0);
            // The old agent's programs stay until the next agent's are attached.
            drop(collector.take());
            let agent = collector.insert(pinned(&root));
            agent.collect();
            let snapshot = agent.collect_judged();
            let mut maps = snapshot.maps.iter();
            let marks = maps.find(|fill| fill.map == "marks_hash");
            let marked = marks.map(|fill| fill.entries > Some(0));
            assert_eq!(marked, (round % 2 == 1).then_some(true), "{marks:?}");
            let now = links(&root);
            // The numbers of links differ: where tasks have types (v5.11) memory's
            // programs read through them. Such programs are rejected without task
            // storage, which comes with the types.
            let exits = now.iter().filter(|name| name.starts_with("on_exit-"));
            assert_eq!(exits.count(), 1, "one of each: {now:?}");
            assert!(now.is_disjoint(&attached), "the others are gone: {now:?}");
            attached = now;
        }
        is_over.store(true, Ordering::Relaxed);
        passing.join().expect("its threads end")
    });
    let last = collector.expect("there is one").collect();
    let reported_ns = all_ns(vm(&last, pid)) - reported_before_ns;
    let used_ns = pod.usage_ns() - used_before_ns;
    assert!(
        used_ns >= spawned_ns && spawned_ns > 20 * MS,
        "{spawned_ns}"
    );
    assert_close(
        "the pod",
        reported_ns,
        used_ns,
        (used_ns / 200).max(10 * MS),
    );
}

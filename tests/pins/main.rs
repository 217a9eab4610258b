//! The BPF programs keep counting without the agent, and the next agent continues: on the
//! running kernel as root, and by `make test-pins` on each kernel of tests/vm.

#![expect(unsafe_code, reason = "closures between fork and exec")]

mod busy;
mod exec;
mod faults;
mod idle;
mod killed;
mod loaders;
mod missed;
mod renamed;
mod restarted;
mod scene;
mod starved;
mod swapped;
mod unadmitted;
mod upgraded;

use std::fs;
use std::process::Command;
use std::time::Duration;

use libbpf_rs::MapHandle;
use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::Snapshot;
use virtlens_model::vocab::Role;
use virtlens_probe::loader::Loader;
use virtlens_tests::reader::{self, MS, all_ns, assert_close, cpu_ns, dropped, vm};
use virtlens_tests::root::Root;
use virtlens_tests::{Agent, Minivm, TestCgroup, binary, cgroupfs_pod_path, need, unique_pod_uid};

fn pinned(root: &Root) -> Collector {
    pinned_by(root, reader::options().loader)
}

fn pinned_by(root: &Root, loader: Loader) -> Collector {
    let options = Options {
        root: root.path().to_owned(),
        pin: true,
        linger: Duration::ZERO,
        loader,
        ..Options::default()
    };
    Collector::open(&options).expect("the host can be read")
}

/// The pinned map with this name in the object, if there is one.
fn pinned_map(root: &Root, name: &str) -> Option<MapHandle> {
    let maps = fs::read_dir(root.pins().join("maps")).expect("it is there");
    let mut maps = maps.map(|map| map.expect("it can be read"));
    let prefix = format!("{name}-");
    let map = maps.find(|map| map.file_name().to_string_lossy().starts_with(&prefix))?;
    Some(MapHandle::from_pinned_path(map.path()).expect("it can be opened"))
}

fn command(root: &Root, args: &[&str]) -> Command {
    let mut command = Command::new(binary("virtlens"));
    command.args(args).arg("--root").arg(root.path());
    command
}

fn run(root: &Root) -> Command {
    command(
        root,
        &["run", "--listen", "127.0.0.1:0", "--min-age", "1ms"],
    )
}

/// Threads that start and end while no agent runs are counted to the nanosecond, and the
/// sum for the pod equals its cgroup's CPU time.
#[test]
fn time_without_agent_is_counted() {
    let test = "time_without_agent_is_counted";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let root = Root::with_bpffs();
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let container = pod.child(&"ab".repeat(32));
    let args = ["--vcpus", "2", "--thread", "io=1", "--name", "alone"];
    let mut guest = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    let mut collector = pinned(&root);
    let first = collector.collect();
    let used_before = pod.usage_ns();
    drop(collector);

    let vcpus = guest.burn_vcpus("all", 60);
    let spawned = guest.spawn(7, 20, "passing");
    let mut collector = pinned(&root);
    let again = collector.collect();
    let later = guest.spawn(3, 20, "passing");
    let last = collector.collect();
    let used = pod.usage_ns() - used_before;

    let [first, again, last] = [&first, &again, &last].map(|one| vm(one, guest.pid()));
    let of_threads = |one| cpu_ns(one, Role::Emulator);
    let reported = [(first, again, spawned), (again, last, later)];
    for (before, after, burned) in
        reported.map(|(a, b, burned)| (of_threads(a), of_threads(b), burned))
    {
        // Plus the CPU time that the VMM used to start them.
        let reported = after - before;
        assert!(
            (burned..used).contains(&reported),
            "{reported} ns of {burned}"
        );
    }
    for receipt in &vcpus {
        let of = |one: &virtlens_model::snapshot::Vm| {
            let one = one
                .vcpus
                .iter()
                .find(|one| one.tid == Some(receipt.tid.cast_unsigned()));
            one.expect("it lives").cpu_ns
        };
        let reported = of(again) - of(first);
        assert!(
            (receipt.burned_ns..receipt.burned_ns + 20 * MS).contains(&reported),
            "{reported} ns of {receipt:?}"
        );
    }
    assert_close(
        "the pod",
        all_ns(last) - all_ns(first),
        used,
        (used / 200).max(20 * MS),
    );
}

/// A VM that has ended before the next agent starts leaves nothing in the maps.
#[test]
fn entries_of_ended_vm_are_removed() {
    if !reader::ready("entries_of_ended_vm_are_removed") {
        return;
    }
    let root = Root::with_bpffs();
    let entries = |snapshot: &Snapshot, map| {
        let fill = snapshot.maps.iter().find(|one| one.map == map);
        fill.expect("it is listed").entries.expect("it is known")
    };
    let mut collector = pinned(&root);
    let before = collector.collect();
    let mut gone = Minivm::start(["--vcpus", "2", "--name", "gone"]);
    collector.collect();
    gone.spawn(4, 5, "passing");
    let filled = collector.collect();
    assert!(entries(&filled, "vms") > entries(&before, "vms"));
    assert!(entries(&filled, "retired") > entries(&before, "retired"));
    assert!(entries(&filled, "book") > entries(&before, "book"));
    drop(collector);
    drop(gone);
    let mut collector = pinned(&root);
    let last = collector.collect();
    let mut ended = last.vms.iter();
    let ended = ended.find(|vm| &*vm.vm == "gone").expect("it is listed");
    assert!(!ended.running && all_ns(ended) > 0, "to its end: {ended:?}");
    collector.collect();
    let after = collector.collect();
    // This machine may run other VMs, which may end.
    for map in ["vms", "discards", "ended_vcpus", "book"] {
        let is_gone = entries(&after, map) <= entries(&before, map);
        assert!(is_gone, "{map}: {:?}, {:?}", before.maps, after.maps);
    }
    assert!(entries(&after, "retired") < entries(&filled, "retired"));
}

#[test]
fn second_agent_reports_running_agent() {
    if !reader::ready("second_agent_reports_running_agent") {
        return;
    }
    let root = Root::with_bpffs();
    let mut first = Agent::start(run(&root));
    let second = run(&root).output().expect("it runs");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(
        said.contains("another virtlens agent on this node"),
        "{said}"
    );
    assert!(said.contains("--no-pin"), "the remedy: {said}");
    let cleaned = command(&root, &["check", "--clean"])
        .output()
        .expect("it runs");
    assert_eq!(cleaned.status.code(), Some(1), "not under a running agent");

    let mut beside = run(&root);
    beside.arg("--no-pin");
    let mut beside = Agent::start(beside);
    assert!(beside.get("/metrics").contains("virtlens_source_up"));
    assert_eq!(beside.stop().0, Some(0));
    assert_eq!(first.stop().0, Some(0));
    drop(Agent::start(run(&root)));
}

#[test]
fn check_clean_removes_all_pins() {
    if !reader::ready("check_clean_removes_all_pins") {
        return;
    }
    let root = Root::with_bpffs();
    let _guest = Minivm::start(["--vcpus", "1", "--name", "cleaned"]);
    assert_eq!(Agent::start(run(&root)).stop().0, Some(0));
    let left = fs::read_dir(root.pins().join("links")).expect("it stays");
    assert!(left.count() >= 3, "programs count on");
    let clean = || {
        command(&root, &["check", "--clean"])
            .output()
            .expect("it runs")
    };
    let first = clean();
    let said = String::from_utf8_lossy(&first.stdout).into_owned();
    assert_eq!(first.status.code(), Some(0));
    assert!(
        said.contains("attached programs and") && said.contains("maps"),
        "{said}"
    );
    assert!(!root.pins().exists());
    let said = String::from_utf8_lossy(&clean().stdout).into_owned();
    assert!(said.contains("nothing to remove"), "{said}");
}

#[test]
fn missing_bpffs_is_reported_and_agent_works() {
    if !reader::ready("missing_bpffs_is_reported_and_agent_works") {
        return;
    }
    let root = Root::without_bpffs();
    let guest = Minivm::start(["--vcpus", "1", "--name", "plain"]);
    let mut collector = pinned(&root);
    let snapshot = collector.collect();
    let row = snapshot.sources.iter().find(|one| one.name == "pins");
    let row = row.expect("it is listed");
    assert!(!row.up && row.reason.contains("mount -t bpf"), "{row:?}");
    assert_eq!(&*vm(&snapshot, guest.pid()).vm, "plain");
}

/// A map of another layout is never read, and programs of another version stop counting.
#[test]
fn maps_of_another_version_are_dropped_and_named() {
    if !reader::ready("maps_of_another_version_are_dropped_and_named") {
        return;
    }
    let root = Root::with_bpffs();
    drop(pinned(&root));
    let maps = root.pins().join("maps");
    let named = |name: &str| {
        let mut files = fs::read_dir(&maps).expect("it is there").flatten();
        let file = files.find(|file| file.file_name().to_string_lossy().starts_with(name));
        file.expect("it is pinned").path()
    };
    // bpffs can rename pinned objects.
    fs::rename(named("retired-"), maps.join("retired-0000000000000001")).expect("renamed");
    fs::rename(named("levels-"), maps.join("levels-0000000000000001")).expect("renamed");
    let links = root.pins().join("links");
    let link = fs::read_dir(&links).expect("it is there").flatten().next();
    let link = link.expect("one is pinned").path();
    fs::rename(link, links.join("on_exit-0000000000000001")).expect("renamed");

    let mut collector = pinned(&root);
    let snapshot = collector.collect();
    assert_eq!(dropped(&snapshot, "map_layout"), 2);
    for dir in [&maps, &links] {
        let mut files = fs::read_dir(dir).expect("it is there").flatten();
        let old = files.find(|file| {
            file.file_name()
                .to_string_lossy()
                .ends_with("-0000000000000001")
        });
        assert!(old.is_none(), "{old:?}");
    }
}

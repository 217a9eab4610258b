//! When the role of a thread changes, its earlier CPU time stays with the former role.

use std::path::Path;

use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, MS, all_ns, assert_close, cpu_ns, dropped, vm};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

/// A minivm that looks like QEMU: thread names decide roles only for known VMMs.
fn like_qemu<'a>(dir: &Path, args: impl IntoIterator<Item = &'a str>) -> Minivm {
    let file = dir.join("qemu-system-x86_64");
    std::fs::copy(binary("minivm"), &file).expect("there is room for a copy");
    Minivm::start_launch(Launch::new(&file).args(args))
}

fn run_ns(pid: u32, tid: i32) -> u64 {
    let stat = Schedstat::read(pid, tid).expect("the thread lives");
    stat.cpu_ns
}

fn roles(vm: &Vm) -> [u64; 3] {
    [Role::Vcpu, Role::Iothread, Role::Emulator].map(|role| cpu_ns(vm, role))
}

#[test]
fn renamed_thread_leaves_its_time_to_its_former_role() {
    if !reader::ready("renamed_thread_leaves_its_time_to_its_former_role") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder can be made");
    let mut guest = like_qemu(dir.path(), ["--vcpus", "1", "--thread", "worker=1"]);
    let (pid, tid) = (guest.pid(), guest.ready.threads[0].tid);
    let mut collector = reader::collector();
    guest.burn_threads("0", 127);
    let worked_ns = run_ns(pid, tid);
    let first = collector.collect();
    let [_, iothread, emulator] = roles(vm(&first, pid));
    assert_eq!(iothread, 0);
    assert!(emulator >= worked_ns, "{emulator} of {worked_ns}");

    guest.rename_thread(0, "IO io0");
    let renamed = collector.collect();
    let [_, iothread, still] = roles(vm(&renamed, pid));
    assert!(still >= emulator, "the emulator fell to {still}");
    assert!(iothread < MS, "a new iothread has used {iothread} ns");
    guest.burn_threads("0", 71);
    let last = collector.collect();
    let last = vm(&last, pid);
    let [_, iothread, emulator] = roles(last);
    assert_close("iothread", iothread, run_ns(pid, tid) - worked_ns, MS);
    assert_close("worker", last.workers[0].cpu_ns, iothread, 0);
    let main = Schedstat::of_main(pid).cpu_ns;
    assert_close("emulator", emulator, worked_ns + main, 5 * MS);
    let threads = virtlens_tests::process::tids(pid).into_iter();
    let used: u64 = threads.map(|tid| run_ns(pid, tid)).sum();
    assert_close("all roles", all_ns(last), used, MS);
}

/// Under its former name the thread returns to its former role and worker number.
#[test]
fn thread_renamed_again_and_again_is_counted_once() {
    if !reader::ready("thread_renamed_again_and_again_is_counted_once") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder can be made");
    let mut guest = like_qemu(dir.path(), ["--vcpus", "1", "--thread", "IO a=1"]);
    let (pid, tid) = (guest.pid(), guest.ready.threads[0].tid);
    let mut collector = reader::collector();
    let (mut before, mut worked) = (0, 0);
    for name in ["IO b", "worker", "IO a", "IO c", "worker", "IO a"] {
        guest.burn_threads("0", 13);
        guest.rename_thread(0, name);
        guest.burn_threads("0", 11);
        let snapshot = collector.collect();
        let iothread = cpu_ns(vm(&snapshot, pid), Role::Iothread);
        assert!(iothread >= before, "fell from {before} to {iothread}");
        before = iothread;
        let workers = vm(&snapshot, pid).workers.iter();
        let of_workers: u64 = workers.map(|one| one.cpu_ns).sum();
        assert!(
            of_workers >= worked,
            "the worker fell from {worked} to {of_workers}"
        );
        assert!(of_workers <= iothread, "{of_workers} of {iothread}");
        worked = of_workers;
    }
    // The thread worked as an iothread between all renames, except for 2 · 24 ms.
    let expected = run_ns(pid, tid) - 48 * MS;
    assert_close("iothread", before, expected, 2 * MS);
    let last = collector.collect();
    assert_eq!(dropped(&last, "retired_names"), 0);
}

#[test]
fn process_after_exec_leaves_time_to_former_role() {
    let test = "process_after_exec_leaves_time_to_former_role";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder can be made");
    let daemon = dir.path().join("virtiofsd");
    std::fs::copy("/bin/sleep", &daemon).expect("there is room for a copy");
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let (main, side) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
    let guest = Minivm::start_launch(Minivm::launch().args(["--vcpus", "1"]).cgroup(&main));
    let mut collector = reader::collector();
    let go = dir.path().join("go");
    let script = format!(
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; until [ -e {} ]; do sleep 0.05; \
         done; exec {} 60",
        go.display(),
        daemon.display()
    );
    let mut helper = Launch::new("sh")
        .args(["-c", &script])
        .cgroup(&side)
        .spawn();
    let before = eventually("it has worked", || {
        let snapshot = collector.collect();
        let used = cpu_ns(vm(&snapshot, guest.pid()), Role::Helper);
        (used > 100 * MS).then_some(used)
    });
    std::fs::write(&go, "").expect("a file can be made");
    let snapshot = eventually("it execs", || {
        let snapshot = collector.collect();
        (reader::threads(vm(&snapshot, guest.pid()), Role::Virtiofsd) > 0).then_some(snapshot)
    });
    let used_ns = side.usage_ns();
    helper.kill().and_then(|()| helper.wait()).expect("it runs");
    let found = vm(&snapshot, guest.pid());
    let [helpers, virtiofsd] = [Role::Helper, Role::Virtiofsd].map(|role| cpu_ns(found, role));
    assert!(helpers >= before, "helpers fell from {before} to {helpers}");
    assert!(
        virtiofsd < 20 * MS,
        "a new virtiofsd has used {virtiofsd} ns"
    );
    assert_close("the pod", helpers + virtiofsd, used_ns, 20 * MS);
}

#[test]
fn late_vcpu_thread_leaves_earlier_time_to_emulator() {
    if !reader::ready("late_vcpu_thread_leaves_earlier_time_to_emulator") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1"]);
    let pid = guest.pid();
    let mut collector = reader::collector();
    let late = guest.plug("pause");
    collector.collect();
    guest.burn_in_user_space(late.index, 97);
    let toiled_ns = run_ns(pid, late.tid);
    let first = collector.collect();
    let [_, _, emulator] = roles(vm(&first, pid));
    assert!(emulator >= toiled_ns, "it is no vCPU yet");
    guest.burn_vcpus(&late.index.to_string(), 53);
    for _ in 0..3 {
        let last = collector.collect();
        let last = vm(&last, pid);
        let [_, _, still] = roles(last);
        assert!(still >= emulator, "the emulator fell to {still}");
        let vcpu = &last.vcpus[1];
        assert_eq!(vcpu.tid, Some(late.tid.unsigned_abs()));
        // This reading found KVM_RUN: earlier CPU time belongs to the emulator.
        let used = run_ns(pid, late.tid);
        assert!(vcpu.cpu_ns <= used - toiled_ns + MS, "{vcpu:?}");
        let threads = virtlens_tests::process::tids(pid).into_iter();
        let all: u64 = threads.map(|tid| run_ns(pid, tid)).sum();
        assert_close("all roles", all_ns(last), all, MS);
        guest.burn_vcpus(&late.index.to_string(), 31);
    }
    let before = collector.collect();
    let receipt = guest.burn_vcpus(&late.index.to_string(), 41);
    let after = collector.collect();
    let grown = vm(&after, pid).vcpus[1].cpu_ns - vm(&before, pid).vcpus[1].cpu_ns;
    assert_close("the vCPU", grown, receipt[0].burned_ns, MS);
}

/// A vCPU thread that was seen as soon as it ran has no CPU time in another role.
#[test]
fn vcpu_plugged_between_readings_is_vcpu_from_start() {
    if !reader::ready("vcpu_plugged_between_readings_is_vcpu_from_start") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1"]);
    let mut collector = reader::collector();
    let late = guest.plug("halt");
    guest.burn_vcpus(&late.index.to_string(), 53);
    let snapshot = collector.collect();
    let shown = vm(&snapshot, guest.pid()).vcpus[1].cpu_ns;
    assert_close("the vCPU", shown, run_ns(guest.pid(), late.tid), MS);
}

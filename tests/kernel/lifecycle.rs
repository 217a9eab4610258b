//! Start and end of threads, pids and VMs.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_model::vocab::Role;
use virtlens_tests::exposed::Counters;
use virtlens_tests::process;
use virtlens_tests::reader::{self, MS, assert_close, cpu_ns, find, threads, vm};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

/// 11 threads that each live about 50 ms, all between two readings.
#[test]
fn unseen_thread_is_counted() {
    if !reader::ready("unseen_thread_is_counted") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1"]);
    let mut collector = reader::collector();
    let before = cpu_ns(vm(&collector.collect(), guest.pid()), Role::Emulator);
    let burned = guest.spawn(11, 50, "brief");
    // The main thread uses some microseconds to start each of them.
    let within = 11 * MS + reader::beside(burned);
    let pid = guest.pid();
    reader::assert_settles(&mut collector, "11 brief threads", burned, within, |now| {
        cpu_ns(vm(now, pid), Role::Emulator) - before
    });
}

/// A reused thread id belongs to a new thread.
#[test]
fn reused_tid_does_not_jump_counters() {
    const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
    if !reader::ready("reused_tid_does_not_jump_counters")
        || !need::all(
            "reused_tid_does_not_jump_counters",
            [need::that(
                "ns_last_pid",
                fs::exists(LAST_PID).unwrap_or(false),
                LAST_PID,
            )],
        )
    {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "1"]);
    let mut collector = reader::collector();
    let before = cpu_ns(vm(&collector.collect(), guest.pid()), Role::Emulator);
    let mut burned = 0;
    let wanted = fs::read_to_string(LAST_PID).expect("it is there");
    for _ in 0..7 {
        fs::write(LAST_PID, wanted.trim()).expect("root may set the last pid");
        burned += guest.spawn(1, 41, "again");
        let now = cpu_ns(vm(&collector.collect(), guest.pid()), Role::Emulator);
        assert!(
            now - before < burned + reader::beside(burned),
            "{now} ns: a tid counted twice"
        );
    }
    let (pid, within) = (guest.pid(), reader::beside(burned));
    reader::assert_settles(
        &mut collector,
        "7 threads of one tid",
        burned,
        within,
        |now| cpu_ns(vm(now, pid), Role::Emulator) - before,
    );
}

/// Counters as Prometheus sees them, read during 500 starts and stops.
#[test]
fn no_counter_falls_over_500_starts_and_stops() {
    if !reader::ready("no_counter_falls_over_500_starts_and_stops") {
        return;
    }
    let mut collector = reader::collector();
    let mut counters = Counters::default();
    let mut known = 0;
    for round in 0..50 {
        // Every second round reuses the names of the one before.
        let names: Vec<String> = (0..10).map(|n| format!("vm-{}-{n}", round / 2)).collect();
        let start = |name: &String| Minivm::start(["--vcpus", "1", "--name", name]);
        let mut guests: Vec<Minivm> = names.iter().map(start).collect();
        guests[0].burn_vcpus("all", 3);
        let snapshot = collector.collect();
        known += guests
            .iter()
            .filter(|guest| find(&snapshot, guest.pid()).is_some())
            .count();
        counters.follow(&snapshot);
        guests.truncate(5);
        counters.follow(&collector.collect());
        drop(guests);
        counters.follow(&collector.collect());
    }
    assert_eq!(known, 500, "every VM was seen while it ran");
}

/// Cloud Hypervisor after `vm.shutdown`: KVM has released the VM, and the VMM process
/// waits for the next one.
#[test]
fn vm_without_vcpus_ends_while_its_vmm_lives() {
    if !reader::ready("vm_without_vcpus_ends_while_its_vmm_lives") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--thread", "api=1", "--name", "released"]);
    let burned = guest.burn_vcpus("all", 20);
    let burned_ns: u64 = burned.iter().map(|one| one.burned_ns).sum();
    let options = Options {
        linger: Duration::ZERO,
        ..reader::options()
    };
    let mut collector = Collector::open(&options).expect("the host can be read");
    assert!(vm(&collector.collect(), guest.pid()).running);
    guest.release();
    let ended = eventually("the end of the VM", || {
        let snapshot = collector.collect();
        find(&snapshot, guest.pid())
            .filter(|vm| !vm.running)
            .cloned()
    });
    assert!(cpu_ns(&ended, Role::Vcpu) >= burned_ns, "{ended:?}");
    // The agent drops the VM and does not report the VMM as a VM again.
    for _ in 0..3 {
        let snapshot = collector.collect();
        let found = find(&snapshot, guest.pid());
        assert!(found.is_none(), "{found:?}");
    }
}

/// Threads with another name than their process.
const POOL: &str = "\
import threading
def rest():
    with open(f'/proc/self/task/{threading.get_native_id()}/comm', 'w') as comm:
        comm.write('pool')
    threading.Event().wait()
for _ in range(300):
    threading.Thread(target=rest).start()";

/// The kernel frees each thread after a separate grace period, so it may free the leader
/// before other threads. Those keep the role of their process.
#[test]
fn threads_freed_after_their_leader_keep_the_role_of_their_process() {
    let test = "threads_freed_after_their_leader_keep_the_role_of_their_process";
    if !reader::ready(test) || !need::all(test, [need::cpu_cgroup()]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let program = folder.path().join("virtiofsd");
    let python = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let python = String::from_utf8(python.expect("python3 starts").stdout).expect("a path");
    symlink(python.trim(), &program).expect("a link can be made");
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let (main, side) = (pod.child(&"ab".repeat(32)), pod.child(&"cd".repeat(32)));
    let guest = Minivm::start_launch(Minivm::launch().args(["--vcpus", "1"]).cgroup(&main));
    let mut collector = reader::collector();
    for _ in 0..5 {
        let process = Launch::new(&program).args(["-c", POOL]);
        let mut process = process.cgroup(&side).spawn();
        let pid = process.id();
        eventually("300 threads have their name", || {
            let threads = process::tids(pid).into_iter();
            let names = threads.filter_map(|tid| process::comm(pid, tid));
            (names.filter(|name| name == "pool").count() == 300).then_some(())
        });
        collector.collect();
        process.kill().expect("it lives");
        process.wait().expect("it is our child");
    }
    let last = eventually("all threads are freed", || {
        let snapshot = collector.collect();
        let vm = vm(&snapshot, guest.pid());
        (threads(vm, Role::Virtiofsd) == 0).then_some(snapshot)
    });
    let vm = vm(&last, guest.pid());
    assert_eq!(cpu_ns(vm, Role::Helper), 0, "{:?}", vm.roles);
    let used_ns = cpu_ns(vm, Role::Virtiofsd);
    assert_close("1500 threads", used_ns, side.usage_ns(), 20 * MS);
}

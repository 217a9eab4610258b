//! Processes that change their identity: a VMM that forks, one that executes another
//! program, pids that are reused at once, pods that move; and a clock that is set.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use virtlens_model::vocab::Role;
use virtlens_tests::exposed::Counters;
use virtlens_tests::reader::{self, MS, assert_close, cpu_ns, find, threads, vm};
use virtlens_tests::{Minivm, eventually, need};

/// The child inherits the VM's files. The VM stays its parent's, and no second VM
/// appears.
#[test]
fn forked_vmm_is_one_vm() {
    if !reader::ready("forked_vmm_is_one_vm") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--name", "forks"]);
    let mut before = reader::collector();
    let mut counters = Counters::default();
    counters.follow(&before.collect());
    let child = guest.fork(60_000);
    let burned: u64 = guest
        .burn_vcpus("all", 31)
        .iter()
        .map(|one| one.cpu_ns)
        .sum();
    // One collector knew the VM before; the other meets both processes at once.
    for collector in [&mut before, &mut reader::collector()] {
        let snapshot = collector.collect();
        let found = vm(&snapshot, guest.pid());
        assert_eq!((&*found.vm, threads(found, Role::Vcpu)), ("forks", 2));
        assert_close(
            "its vCPUs",
            cpu_ns(found, Role::Vcpu),
            burned,
            reader::beside(burned),
        );
        assert!(
            find(&snapshot, child).is_none(),
            "{:?}",
            find(&snapshot, child)
        );
    }
    counters.follow(&before.collect());
    // The child would live for a minute otherwise.
    let child = Pid::from_raw(child.cast_signed()).expect("a pid");
    kill_process(child, Signal::KILL).ok();
}

/// A QEMU that is updated under its guest: same process, other program, all other threads
/// new. The CPU time of the old threads is kept.
#[test]
fn vmm_after_exec_continues_counters() {
    if !reader::ready("vmm_after_exec_continues_counters") {
        return;
    }
    let args = ["--vcpus", "2", "--thread", "io=1", "--name", "updated"];
    let mut guest = Minivm::start(args);
    let (mut collector, mut counters) = (reader::collector(), Counters::default());
    let mut burned = 0;
    for round in 0..5 {
        burned += guest
            .burn_vcpus("all", 23)
            .iter()
            .map(|one| one.burned_ns)
            .sum::<u64>();
        counters.follow(&collector.collect());
        guest.exec();
        let snapshot = collector.collect();
        counters.follow(&snapshot);
        let found = vm(&snapshot, guest.pid());
        let reported: Vec<_> = found.vcpus.iter().filter_map(|one| one.tid).collect();
        let own = guest.ready.vcpus.iter().map(|one| one.tid.unsigned_abs());
        assert_eq!(
            reported,
            own.collect::<Vec<_>>(),
            "round {round}: {found:?}"
        );
        assert_eq!(&*found.vm, "updated");
    }
    // The last CPU time of a thread is final once the kernel frees it, after a grace
    // period.
    eventually("all of the old threads", || {
        let snapshot = collector.collect();
        counters.follow(&snapshot);
        let reported = cpu_ns(vm(&snapshot, guest.pid()), Role::Vcpu);
        assert!(
            reported < burned + 100 * MS,
            "{reported} ns of {burned}: counted twice"
        );
        (reported >= burned).then_some(())
    });
}

const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// A VMM that reuses the pid of one that has just ended is another VM. It gets nothing of
/// the earlier VM, and neither loses CPU time.
#[test]
fn vmm_with_reused_pid_is_another_vm() {
    let test = "vmm_with_reused_pid_is_another_vm";
    let has_pids = fs::exists(LAST_PID).unwrap_or(false);
    if !reader::ready(test) || !need::all(test, [need::that("ns_last_pid", has_pids, LAST_PID)]) {
        return;
    }
    let (mut collector, mut counters) = (reader::collector(), Counters::default());
    let mut first = Minivm::start(["--name", "round-0"]);
    let pid = first.pid();
    let mut burned = first.burn_vcpus("all", 11)[0].cpu_ns;
    let mut met = 0;
    for round in 1..=40 {
        let snapshot = collector.collect();
        counters.follow(&snapshot);
        let at_pid: Vec<_> = snapshot.vms.iter().filter(|vm| vm.pid == pid).collect();
        let running: Vec<_> = at_pid.iter().filter(|vm| vm.running).collect();
        let [found] = running[..] else {
            panic!("one runs: {at_pid:?}")
        };
        let within = reader::beside(burned);
        assert_close(&found.vm, cpu_ns(found, Role::Vcpu), burned, within);
        drop(first);
        let name = format!("round-{round}");
        first = with_pid(pid, &name);
        if first.pid() == pid {
            met += 1;
        } else {
            // Another process took the pid: try the next one.
            drop(first);
            first = with_pid(pid, &name);
            assert_eq!(first.pid(), pid, "twice somebody was faster");
        }
        burned = first.burn_vcpus("all", 2 + round)[0].cpu_ns;
    }
    println!("{met} of 40 at once");
}

/// Starts a VMM with the pid `pid`, unless another process gets it first.
fn with_pid(pid: u32, name: &str) -> Minivm {
    fs::write(LAST_PID, (pid - 1).to_string()).expect("root may set the last pid");
    Minivm::start(["--vcpus", "1", "--name", name])
}

//! The kernel thread of a VM's timer, `kvm-pit/PID`. It runs in the root cgroup, and its
//! name holds the VMM's pid in the VMM's pid namespace.

use virtlens::collect::Collector;
use virtlens_model::vocab::Role;
use virtlens_tests::process::{Schedstat, comm};
use virtlens_tests::reader::{self, MS, cpu_ns, vm};
use virtlens_tests::{
    Launch, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need, unique_pod_uid,
};

/// The newest timer thread with this name.
fn timer(name: &str) -> u32 {
    let pids = || {
        let names = std::fs::read_dir("/proc").expect("it is mounted");
        names.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
    };
    let is_it = |pid: &u32| comm(*pid, pid.cast_signed()).as_deref() == Some(name);
    eventually("the timer", || pids().filter(is_it).max())
}

/// The timer's CPU time belongs to its VM, before and after the timer ends.
fn check(mut guest: Minivm, vmm: u32, timer: u32, collectors: &mut [Collector]) {
    guest.burn_vcpus("all", 5);
    let mut shown = Vec::new();
    for collector in &mut *collectors {
        eventually("the timer to have worked", || {
            (Schedstat::of_main(timer).cpu_ns > 2 * MS).then_some(())
        });
        let low = Schedstat::of_main(timer).cpu_ns;
        let snapshot = collector.collect();
        let truth = low..=Schedstat::of_main(timer).cpu_ns + 4 * MS;
        let vm = vm(&snapshot, vmm);
        let mut threads = vm.threads.iter();
        let thread = threads.find(|one| one.tid == timer);
        let thread = thread.unwrap_or_else(|| panic!("thread {timer} is missing: {vm:?}"));
        assert_eq!(thread.role, Some(Role::Emulator), "{thread:?}");
        assert!(
            truth.contains(&thread.cpu_ns),
            "{thread:?} is not in {truth:?}"
        );
        assert_eq!(vm.cgroup_layout, Some("pod"));
        let mut roles = vm.roles.iter();
        let emulator = roles.find(|one| one.role == Role::Emulator);
        assert_eq!(emulator.expect("it was read").outside_pod, Some(1));
        shown.push(cpu_ns(vm, Role::Emulator));
    }
    let last = Schedstat::of_main(timer).cpu_ns;
    drop(guest);
    eventually("its end", || {
        (!std::path::Path::new(&format!("/proc/{timer}")).exists()).then_some(())
    });
    for (collector, shown) in collectors.iter_mut().zip(shown) {
        let now = cpu_ns(vm(&collector.collect(), vmm), Role::Emulator);
        assert!(
            now >= shown && now >= last / 2,
            "{now} ns, {shown} and {last} before"
        );
    }
}

fn ready(test: &str) -> bool {
    reader::ready(test) && need::all(test, [need::cpu_cgroup()])
}

#[test]
fn timer_of_a_vm_counts_as_its_emulator() {
    if !ready("timer_of_a_vm_counts_as_its_emulator") {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let launch = Minivm::launch().args(["--vcpus", "1", "--pit"]);
    let guest = Minivm::start_launch(launch.cgroup(&pod));
    let (vmm, timer) = (guest.pid(), timer(&format!("kvm-pit/{}", guest.pid())));
    let (mut collectors, _root) = reader::collectors();
    check(guest, vmm, timer, &mut collectors);
}

/// The thread is named `kvm-pit/1`, as those of other pods may be.
#[test]
fn timer_of_a_vm_in_a_pid_namespace_is_found() {
    if !ready("timer_of_a_vm_in_a_pid_namespace_is_found") {
        return;
    }
    let pod = TestCgroup::new(&cgroupfs_pod_path(&unique_pod_uid()));
    let launch = Launch::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(binary("minivm"))
        .args(["--vcpus", "1", "--pit"]);
    let guest = Minivm::start_launch(launch.cgroup(&pod));
    assert_eq!(guest.ready.pid, 1, "it is alone in its namespace");
    let unshare = guest.pid();
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let children = std::fs::read_to_string(children).expect("the kernel lists them");
    let vmm = children.trim().parse().expect("one child");
    let (mut collectors, _root) = reader::collectors();
    check(guest, vmm, timer("kvm-pit/1"), &mut collectors);
}

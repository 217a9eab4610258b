//! CPU time of each thread equals the kernel's, to the nanosecond.

use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::reader::{self, assert_close, beside, cpu_ns, vm};
use virtlens_tests::{Minivm, Qemu, need};

/// A QEMU with all vCPUs spinning, one half idle, and an idle one.
#[test]
fn thread_time_is_between_two_reads_of_schedstat() {
    if !reader::ready("thread_time_is_between_two_reads_of_schedstat")
        || !need::all(
            "thread_time_is_between_two_reads_of_schedstat",
            [need::qemu()],
        )
    {
        return;
    }
    let qemu = Qemu::start(
        4,
        [
            "-smp",
            "4,sockets=1,cores=2,threads=2",
            "-name",
            "guest=busy,debug-threads=on",
        ],
    );
    let half = Minivm::start(["--vcpus", "3", "--start", "duty:40", "--thread", "IO io0=2"]);
    let idle = Minivm::start(["--vcpus", "2"]);
    let mut collector = reader::collector();
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let stat = |pid| {
            virtlens_tests::process::tids(pid)
                .into_iter()
                .map(|tid| (tid, Schedstat::read(pid, tid).expect("no thread ends here")))
                .collect::<Vec<_>>()
        };
        let pids = [qemu.pid(), half.pid(), idle.pid()];
        let before = pids.map(stat);
        let snapshot = collector.collect();
        let after = pids.map(stat);
        for (pid, (before, after)) in pids.into_iter().zip(before.iter().zip(&after)) {
            let vm = vm(&snapshot, pid);
            // The timer is a kernel thread outside of the VMM's process.
            let own = vm.threads.iter();
            let own = own.filter(|one| !one.name.as_bytes().starts_with(b"kvm-pit/"));
            assert_eq!(own.count(), before.len(), "threads of {}", vm.vm);
            for ((tid, low), (_, high)) in before.iter().zip(after) {
                let thread = vm.threads.iter().find(|one| one.tid == tid.unsigned_abs());
                let thread =
                    thread.unwrap_or_else(|| panic!("thread {tid} of {} is missing", vm.vm));
                let cpu = low.cpu_ns..=high.cpu_ns;
                let wait = low.wait_ns..=high.wait_ns;
                assert!(cpu.contains(&thread.cpu_ns), "{thread:?} is not in {cpu:?}");
                let wait_ns = thread.wait_ns.expect("schedstats are on");
                assert!(wait.contains(&wait_ns), "{thread:?} is not in {wait:?}");
            }
        }
    }
}

fn thread_cpu_ns(vm: &Vm, tid: i32) -> u64 {
    let mut threads = vm.threads.iter();
    let thread = threads.find(|one| one.tid == tid.cast_unsigned());
    thread.expect("it lives").cpu_ns
}

/// 233 ms on a vCPU, 127 ms on a thread of the VMM: primes, so that no other time in the
/// system matches them.
#[test]
fn burned_time_appears_only_in_its_role() {
    if !reader::ready("burned_time_appears_only_in_its_role") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--thread", "disk=1"]);
    let mut collector = reader::collector();
    let main_before = Schedstat::of_main(guest.pid());
    let before = collector.collect();
    let vcpus = guest.burn_vcpus("1", 233);
    let helpers = guest.burn_threads("0", 127);
    let after = collector.collect();
    let main_after = Schedstat::of_main(guest.pid());
    let (before, after) = (vm(&before, guest.pid()), vm(&after, guest.pid()));
    let [vcpu] = vcpus.as_slice() else {
        panic!("one vCPU burned: {vcpus:?}")
    };
    let [helper] = helpers.as_slice() else {
        panic!("one thread burned: {helpers:?}")
    };

    let of_role = |role| cpu_ns(after, role) - cpu_ns(before, role);
    let (of_vcpus, within) = (of_role(Role::Vcpu), beside(vcpu.burned_ns));
    assert_close("role vcpu", of_vcpus, vcpu.burned_ns, within);
    // CPU time of the main thread, which reads the orders and reports their end.
    let main_ns = main_after.cpu_ns - main_before.cpu_ns;
    let emulator_ns = helper.burned_ns + main_ns;
    let (of_emulator, within) = (of_role(Role::Emulator), beside(emulator_ns));
    assert_close("role emulator", of_emulator, emulator_ns, within);
    let of_helper = |vm| thread_cpu_ns(vm, helper.tid);
    let reported = of_helper(after) - of_helper(before);
    let within = beside(helper.burned_ns);
    assert_close("the thread", reported, helper.burned_ns, within);
    let of_vcpu = after.vcpus[1].cpu_ns - before.vcpus[1].cpu_ns;
    let within = beside(vcpu.burned_ns);
    assert_close("vCPU 1", of_vcpu, vcpu.burned_ns, within);
    let other = after.vcpus[0].cpu_ns - before.vcpus[0].cpu_ns;
    assert!(other < within, "the other vCPU was idle: {other} ns");
}

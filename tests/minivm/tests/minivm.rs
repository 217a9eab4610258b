//! Checks the behaviour of minivm that suites rely on against the kernel's values.
//! Nothing here depends on the speed of the machine.

use virtlens_tests::process::{self, Schedstat};
use virtlens_tests::{Minivm, eventually, need};

const MS_NS: u64 = 1_000_000;

fn cpu_ns(vm: &Minivm, tid: i32) -> u64 {
    Schedstat::read(vm.pid(), tid)
        .expect("the thread lives")
        .cpu_ns
}

#[test]
fn burn_advances_schedstat_exactly() {
    if !need::all("burn_advances_schedstat_exactly", [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start(["--vcpus", "2", "--thread", "IO iothread{}=1"]);
    let (vcpus, helper) = (vm.ready.vcpus.clone(), vm.ready.threads[0].tid);
    let before = [vcpus[0].tid, vcpus[1].tid, helper].map(|tid| cpu_ns(&vm, tid));
    let mut receipts = vm.burn_vcpus("all", 233);
    receipts.extend(vm.burn_threads("0", 17));
    for ((receipt, before_ns), burned_ms) in receipts.iter().zip(before).zip([233, 233, 17]) {
        assert!(receipt.burned_ns >= burned_ms * MS_NS, "{receipt:?}");
        let went_on_ns = cpu_ns(&vm, receipt.tid) - before_ns;
        assert!(went_on_ns >= receipt.burned_ns, "{receipt:?}");
        // KVM wakes a halted vCPU now and then, to update its clock.
        assert!(went_on_ns < receipt.burned_ns * 5 / 4, "{receipt:?}");
    }
}

#[test]
fn halted_vcpu_blocks_in_kernel_without_cpu_time() {
    if !need::all(
        "halted_vcpu_blocks_in_kernel_without_cpu_time",
        [need::kvm()],
    ) {
        return;
    }
    let mut vm = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    vm.command("halt 0");
    let [halted, spinning] = [vm.ready.vcpus[0].tid, vm.ready.vcpus[1].tid];
    assert!(process::is_halted(vm.pid(), halted));
    assert!(!process::is_halted(vm.pid(), spinning));
    let (halted_ns, spinning_ns) = (cpu_ns(&vm, halted), cpu_ns(&vm, spinning));
    eventually("the spinning vCPU to use CPU", || {
        (cpu_ns(&vm, spinning) > spinning_ns + 50 * MS_NS).then_some(())
    });
    // KVM wakes it now and then, to update its clock.
    let used_ns = [(halted, halted_ns), (spinning, spinning_ns)]
        .map(|(tid, before_ns)| cpu_ns(&vm, tid) - before_ns);
    assert!(used_ns[0] < used_ns[1] / 4, "{used_ns:?}");
}

#[test]
fn a_paused_vcpu_waits_in_user_space_from_the_start_and_can_still_run() {
    let test = "a_paused_vcpu_waits_in_user_space_from_the_start_and_can_still_run";
    if !need::all(test, [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start(["--start", "pause"]);
    let tid = vm.ready.vcpus[0].tid;
    assert_eq!(process::vcpu_ids(vm.pid()), [0]);
    assert!(!process::is_halted(vm.pid(), tid));
    vm.command("halt all");
    assert!(process::is_halted(vm.pid(), tid));
    vm.command("pause all");
    assert!(!process::is_halted(vm.pid(), tid));
    assert_eq!(vm.status().vcpus[0].mode, "pause");
}

#[test]
fn duty_mode_uses_cpu_and_idles() {
    if !need::all("duty_mode_uses_cpu_and_idles", [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start(["--start", "duty:30"]);
    let tid = vm.ready.vcpus[0].tid;
    let start_ns = cpu_ns(&vm, tid);
    eventually("use of CPU", || {
        (cpu_ns(&vm, tid) > start_ns + 20 * MS_NS).then_some(())
    });
    eventually("rest", || process::is_halted(vm.pid(), tid).then_some(()));
    vm.command("halt all");
}

#[test]
fn exiting_vcpu_uses_cpu_and_follows_commands() {
    if !need::all("exiting_vcpu_uses_cpu_and_follows_commands", [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start(["--start", "exit"]);
    let tid = vm.ready.vcpus[0].tid;
    let start_ns = cpu_ns(&vm, tid);
    eventually("use of CPU", || {
        (cpu_ns(&vm, tid) > start_ns + 20 * MS_NS).then_some(())
    });
    vm.command("halt all");
    assert!(process::is_halted(vm.pid(), tid));
}

#[test]
fn hotplug_adds_thread_and_unplug_keeps_kvm_file() {
    if !need::all(
        "hotplug_adds_thread_and_unplug_keeps_kvm_file",
        [need::kvm()],
    ) {
        return;
    }
    let mut vm = Minivm::start(["--vcpus", "2", "--vcpu-ids", "4:3"]);
    let plugged = vm.plug("spin");
    assert_eq!((plugged.index, plugged.id), (2, 10));
    assert!(process::tids(vm.pid()).contains(&plugged.tid));
    assert_eq!(process::vcpu_ids(vm.pid()), [4, 7, 10]);

    let old_tid = vm.ready.vcpus[1].tid;
    let seen_ns = cpu_ns(&vm, old_tid);
    assert!(vm.unplug(1) >= seen_ns);
    // The thread was joined; the kernel removes it from /proc slightly later.
    eventually("the end of the thread", || {
        (!process::tids(vm.pid()).contains(&old_tid)).then_some(())
    });
    assert_eq!(process::vcpu_ids(vm.pid()), [4, 7, 10]);
    assert_eq!(vm.status().vcpus.len(), 2);

    let again = vm.plug("halt");
    assert_eq!((again.index, again.id), (1, 7));
    assert_ne!(again.tid, old_tid);
    assert!(process::is_halted(vm.pid(), again.tid));
    assert_eq!(process::vcpu_ids(vm.pid()), [4, 7, 10]);
}

#[test]
fn threads_have_requested_names() {
    if !need::all("threads_have_requested_names", [need::kvm()]) {
        return;
    }
    let names = |vm: &Minivm| -> Vec<String> {
        let vcpus = vm.ready.vcpus.iter().map(|vcpu| vcpu.tid);
        let helpers = vm.ready.threads.iter().map(|thread| thread.tid);
        let main = i32::try_from(vm.pid()).expect("pids are ints");
        let tids = std::iter::once(main).chain(vcpus).chain(helpers);
        tids.map(|tid| process::comm(vm.pid(), tid).expect("it lives"))
            .collect()
    };
    let args = [
        "--comm",
        "cloud-hypervisor",
        "--vcpu-name",
        "vcpu{}",
        "--thread",
        "_disk0_q{}=2",
    ];
    let named = Minivm::start(args);
    assert_eq!(
        names(&named),
        ["cloud-hyperviso", "vcpu0", "_disk0_q0", "_disk0_q1"]
    );
    let same = Minivm::start(["--comm", "qemu-system-x86_64", "--vcpu-name", "same"]);
    assert_eq!(names(&same), ["qemu-system-x86", "qemu-system-x86"]);
}

#[test]
fn topology_yields_vcpu_ids_and_leaves_that_kvm_accepts() {
    if !need::all(
        "topology_yields_vcpu_ids_and_leaves_that_kvm_accepts",
        [need::kvm()],
    ) {
        return;
    }
    let shape = "sockets=2,dies=2,cores=3,threads=2";
    for vendor in ["intel", "amd"] {
        let mut vm = Minivm::start(["--topology", shape, "--vendor", vendor, "--vcpus", "7"]);
        let ids: Vec<u32> = vm.ready.vcpus.iter().map(|vcpu| vcpu.id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 8]);
        assert_eq!(process::vcpu_ids(vm.pid()), ids);
        assert_eq!(vm.plug("spin").id, 9);
    }
}

#[test]
fn short_lived_threads_count_in_process_clock() {
    if !need::all("short_lived_threads_count_in_process_clock", [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start([]);
    let before_ns = vm.status().process_cpu_ns;
    let burned_ns = vm.spawn(10, 5, "blk");
    assert!(burned_ns >= 50 * MS_NS);
    assert!(vm.status().process_cpu_ns - before_ns >= burned_ns);
    assert!(vm.status().threads.is_empty());
}

#[test]
fn guest_memory_is_touched_and_discarded() {
    if !need::all("guest_memory_is_touched_and_discarded", [need::kvm()]) {
        return;
    }
    let resident_kib = |vm: &Minivm, key: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", vm.pid()));
        let status = status.expect("minivm lives");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("the key is there");
        line.split_whitespace()
            .next()
            .and_then(|kib| kib.parse().ok())
            .expect("a number")
    };
    for (args, key, give_back) in [
        (vec!["--mem", "32M"], "RssAnon:", "madvise dontneed 0 4M 8"),
        (
            vec!["--mem", "32M", "--memfd"],
            "RssShmem:",
            "madvise remove 0 4M 8",
        ),
        (vec!["--mem", "32M", "--memfd"], "RssShmem:", "punch 0 4M 8"),
    ] {
        let mut vm = Minivm::start(args);
        let start_kib = resident_kib(&vm, key);
        vm.command("touch 0 32M");
        assert!(
            resident_kib(&vm, key) >= start_kib + (32 << 10),
            "{give_back}"
        );
        vm.command(give_back);
        // The counters lag by some pages, one batch per CPU.
        assert!(
            resident_kib(&vm, key) < start_kib + (4 << 10),
            "{give_back}"
        );
        // The guest's programs are not in guest memory.
        vm.burn_vcpus("all", 1);
    }
}

#[test]
fn invalid_command_is_an_error_without_effect() {
    if !need::all("invalid_command_is_an_error_without_effect", [need::kvm()]) {
        return;
    }
    let mut vm = Minivm::start(["--topology", "cores=1"]);
    for wrong in [
        "spin 1",
        "halt",
        "duty 100 all",
        "burn vcpu 7 1",
        "burn thread 0 1",
        "plug",
        "unplug 3",
        "madvise dontneed 0 4K 17",
        "punch 0 4K 1",
        "fly",
    ] {
        let reply = vm.try_command(wrong);
        assert_eq!(reply["ok"], false, "{wrong}");
        assert!(
            reply["error"].as_str().is_some_and(|text| !text.is_empty()),
            "{wrong}"
        );
    }
    assert_eq!(vm.status().vcpus.len(), 1);
    assert!(process::is_halted(vm.pid(), vm.ready.vcpus[0].tid));
}

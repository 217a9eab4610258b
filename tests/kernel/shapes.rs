//! VMs of all shapes: growing, paused, halted, large, many.

use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::Role;
use virtlens_tests::reader::{self, MS, assert_close, cpu_ns, threads, vm};
use virtlens_tests::{Minivm, Qemu, need};

#[test]
fn vcpu_hot_unplug_and_replug_keep_counters() {
    if !reader::ready("vcpu_hot_unplug_and_replug_keep_counters") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2"]);
    let mut collector = reader::collector();
    assert_eq!(
        threads(vm(&collector.collect(), guest.pid()), Role::Vcpu),
        2
    );

    let plugged = guest.plug("halt");
    guest.burn_vcpus("2", 71);
    let snapshot = collector.collect();
    let with = vm(&snapshot, guest.pid());
    assert_eq!(with.vcpus.iter().filter_map(|one| one.tid).count(), 3);
    assert_eq!(with.vcpus[2].tid, Some(plugged.tid.unsigned_abs()));

    let used = guest.unplug(2);
    let (pid, within) = (guest.pid(), reader::beside(used));
    let what = "an unplugged vCPU";
    let snapshot = reader::assert_settles(&mut collector, what, used, within, |now| {
        vm(now, pid).vcpus[2].cpu_ns
    });
    let without = vm(&snapshot, pid);
    assert_eq!(
        (without.vcpus.len(), without.vcpus[2].tid),
        (3, None),
        "its time stays"
    );
    let held = |vm: &Vm| {
        (
            vm.vcpu_count.online,
            vm.vcpu_count.parked,
            vm.vcpu_count.usable(),
        )
    };
    assert_eq!(held(without), (Some(3), Some(1), 2), "KVM holds it on");
    let snapshot = reader::collector().collect();
    let late = vm(&snapshot, guest.pid());
    assert_eq!(
        held(late),
        (Some(3), Some(1), 2),
        "an agent that starts later"
    );

    guest.plug("halt");
    let again = guest.burn_vcpus("2", 37)[0];
    let snapshot = collector.collect();
    let back = vm(&snapshot, guest.pid());
    assert_eq!(held(back), (Some(3), Some(0), 3));
    assert_eq!(back.vcpus[2].tid, Some(again.tid.unsigned_abs()));
    assert_close(
        "a vCPU that came back",
        back.vcpus[2].cpu_ns,
        used + again.cpu_ns,
        reader::beside(used + again.cpu_ns),
    );
}

#[test]
fn vm_that_never_ran_is_found() {
    if !reader::ready("vm_that_never_ran_is_found")
        || !need::all("vm_that_never_ran_is_found", [need::qemu()])
    {
        return;
    }
    let paused = Minivm::start(["--vcpus", "3", "--start", "pause"]);
    let qemu = Qemu::start(2, ["-S", "-smp", "2", "-name", "guest=paused"]);
    let snapshot = reader::collector().collect();
    for (pid, vcpus) in [(paused.pid(), 3), (qemu.pid(), 2)] {
        let vm = vm(&snapshot, pid);
        assert_eq!(vm.vcpu_count.online, Some(vcpus), "{vm:?}");
        assert_eq!(vm.vcpu_count.usable(), vcpus, "none of them is parked");
        assert!(vm.threads.len() >= vcpus as usize, "its threads are read");
    }
}

/// Its CPU time counts as a vCPU's from the first reading on. Otherwise the emulator
/// would keep it.
#[test]
fn vcpu_in_user_space_when_vm_is_found_is_a_vcpu() {
    if !reader::ready("vcpu_in_user_space_when_vm_is_found_is_a_vcpu") {
        return;
    }
    // This collector scanned the open files before the VM existed.
    let mut collector = reader::collector();
    let mut guest = Minivm::start(["--vcpus", "2", "--start", "spin"]);
    guest.wait_for_cpu(&[0, 1], 50);
    guest.command("pause 1");
    let snapshot = collector.collect();
    let met = vm(&snapshot, guest.pid());
    assert_eq!(threads(met, Role::Vcpu), 2);
    let used_ns: Vec<_> = met.vcpus.iter().map(|vcpu| vcpu.cpu_ns).collect();
    assert!(
        cpu_ns(met, Role::Vcpu) >= used_ns.iter().sum(),
        "{used_ns:?}"
    );
    assert!(cpu_ns(met, Role::Emulator) < used_ns[1], "{used_ns:?}");
}

#[test]
fn a_vm_that_is_paused_later_keeps_its_vcpus() {
    if !reader::ready("a_vm_that_is_paused_later_keeps_its_vcpus") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2"]);
    guest.burn_vcpus("all", 5);
    guest.command("pause all");
    let snapshot = reader::collector().collect();
    let vm = vm(&snapshot, guest.pid());
    assert_eq!(threads(vm, Role::Vcpu), 2, "found by its files: {vm:?}");
    assert!(
        vm.vcpus.iter().all(|vcpu| vcpu.kvm.exits().is_some()),
        "KVM's counters are read too"
    );
}

#[test]
fn vm_halted_from_start_is_found() {
    if !reader::ready("vm_halted_from_start_is_found") {
        return;
    }
    let guest = Minivm::start(["--vcpus", "4", "--start", "halt"]);
    let snapshot = reader::collector().collect();
    let vm = vm(&snapshot, guest.pid());
    assert_eq!(threads(vm, Role::Vcpu), 4);
    assert!(
        vm.vcpus
            .iter()
            .all(|vcpu| vcpu.kvm.exits().is_some_and(|exits| exits.halt() >= 1)),
        "{vm:?}"
    );
}

#[test]
fn vm_with_64_vcpus_is_read_completely() {
    if !reader::ready("vm_with_64_vcpus_is_read_completely") {
        return;
    }
    let mut guest = Minivm::start([
        "--topology",
        "sockets=2,cores=16,threads=2",
        "--mem",
        "256K",
    ]);
    let burned: u64 = guest
        .burn_vcpus("all", 3)
        .iter()
        .map(|one| one.cpu_ns)
        .sum();
    let snapshot = reader::collector().collect();
    let vm = vm(&snapshot, guest.pid());
    let found: Vec<_> = vm.vcpus.iter().map(|one| (one.index, one.id)).collect();
    let expected: Vec<_> = guest
        .ready
        .vcpus
        .iter()
        .map(|one| (Some(one.index), one.id))
        .collect();
    assert_eq!(found, expected);
    assert_close("64 vCPUs", cpu_ns(vm, Role::Vcpu), burned, 64 * MS);
}

#[test]
fn two_hundred_vms_are_read_at_once() {
    if !reader::ready("two_hundred_vms_are_read_at_once") {
        return;
    }
    let args = ["--vcpus", "8", "--thread", "io=4"];
    let guests: Vec<Minivm> = (0..200).map(|_| Minivm::start(args)).collect();
    let mut collector = reader::collector();
    let snapshot = collector.collect();
    for guest in &guests {
        let vm = vm(&snapshot, guest.pid());
        assert_eq!(
            (threads(vm, Role::Vcpu), vm.vcpus.len()),
            (8, 8),
            "{}",
            vm.vm
        );
        assert_eq!(
            vm.threads.len(),
            virtlens_tests::process::tids(guest.pid()).len()
        );
    }
    assert!(
        snapshot.dropped.iter().all(|drop| drop.count == 0),
        "{:?}",
        snapshot.dropped
    );
}

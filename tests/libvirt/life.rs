//! Lifecycle operations on domains while the agent runs: no counter falls, and no VM is
//! lost.

use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::eventually;

use crate::agent::vm;
use crate::domain::Threads;
use crate::guest::Guest;
use crate::{Bench, DB, PLAIN, bench};

fn vcpus_of_guest(bench: &Bench) -> String {
    bench
        .libvirt
        .virsh(&format!("vcpucount {DB} --live --current"))
}

/// The guest has to offline the CPU, which takes longer than libvirt waits.
fn unplug(bench: &mut Bench) {
    let unplugged = bench.libvirt.try_virsh(&["setvcpus", DB, "2", "--live"]);
    println!("setvcpus 2: {unplugged:?}");
    eventually("the vCPU to be unplugged", || {
        sleep(Duration::from_millis(200));
        (vcpus_of_guest(bench) == "2").then_some(())
    });
}

#[test]
fn hotplugged_vcpu_is_seen_and_unplugged_one_is_parked() {
    let mut bench = bench();
    bench.libvirt.virsh(&format!("setvcpus {DB} 3 --live"));
    eventually("the guest to see its CPU", || {
        sleep(Duration::from_millis(200));
        bench.guest.order("online all");
        (bench.agent.find(DB, 2).vcpu_count.seen == 3).then_some(())
    });
    let threads = Threads::of(&bench.libvirt);
    let plugged = bench.agent.find(DB, 3);
    let mut tids: Vec<u32> = plugged.vcpus.iter().filter_map(|vcpu| vcpu.tid).collect();
    tids.sort_unstable();
    let mut truth = threads.vcpus.clone();
    truth.sort_unstable();
    assert_eq!(tids, truth);

    unplug(&mut bench);
    // QEMU and KVM keep the vCPU for later, and the guest runs on two. A VM at its limit
    // needs no more vCPUs and gets no `vcpus_saturated`, so these limits never bind.
    let limits = [("vcpu_quota", 200_000), ("global_quota", 400_000)];
    let found = bench.under("cpu", |bench| {
        bench.with_limits(&limits, |bench| {
            bench.agent.findings(DB, || sleep(Duration::from_secs(4)))
        })
    });
    bench.assert_no_counter_fell();
    assert!(
        found.contains(&"vcpus_saturated"),
        "both that are left are busy: {found:?}"
    );
}

#[test]
fn suspended_domain_is_same_vm_without_cpu_time() {
    let mut bench = bench();
    let vcpu_ns = |bench: &mut Bench| -> u64 {
        let snapshot = bench.agent.read();
        vm(&snapshot, DB).vcpus.iter().map(|vcpu| vcpu.cpu_ns).sum()
    };
    bench.libvirt.virsh(&format!("suspend {DB}"));
    let before = vcpu_ns(&mut bench);
    sleep(Duration::from_secs(1));
    let after = vcpu_ns(&mut bench);
    bench.libvirt.virsh(&format!("resume {DB}"));
    assert!(
        after - before < 5_000_000,
        "{} ns of a suspended guest",
        after - before
    );
    bench.under("cpu", |_| sleep(Duration::from_millis(500)));
    assert!(vcpu_ns(&mut bench) > after, "it goes on");
    bench.assert_no_counter_fell();
}

#[test]
fn saved_domain_ends_and_restored_one_continues() {
    let mut bench = bench();
    let before = bench.agent.find(PLAIN, 1);
    bench.libvirt.virsh(&format!("managedsave {PLAIN}"));
    eventually("its end to be seen", || {
        let snapshot = bench.agent.read();
        let mut running = snapshot.vms.iter().filter(|vm| vm.running);
        running.all(|vm| &*vm.vm != PLAIN).then_some(())
    });
    bench.libvirt.virsh(&format!("start {PLAIN}"));
    let after = bench.agent.find(PLAIN, 1);
    assert_ne!(after.pid, before.pid, "it is another process");
    bench.assert_no_counter_fell();
}

fn throttle(bench: &mut Bench) {
    bench.under("cpu", |bench| {
        bench.with_limits(&[("global_quota", 40_000)], |_| {
            sleep(Duration::from_secs(1));
        });
    });
    bench.agent.read();
}

#[test]
fn restarted_domain_continues_counters() {
    let mut bench = bench();
    throttle(&mut bench);
    let before = bench.agent.find(DB, 2);
    bench.libvirt.virsh(&format!("destroy {DB}"));
    bench.agent.read();
    bench.libvirt.virsh(&format!("start {DB}"));
    bench.guest = Guest::wait();
    let after = bench.agent.find(DB, 2);
    assert_ne!(after.pid, before.pid, "it is another process");
    // Throttling counters exist once throttling has occurred.
    throttle(&mut bench);
    bench.assert_no_counter_fell();
}

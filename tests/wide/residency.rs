//! Residency of vCPUs that run on every CPU.

use std::collections::{BTreeMap, BTreeSet};

use virtlens_model::snapshot::{Snapshot, Vcpu};
use virtlens_tests::process::{Schedstat, is_halted, set_affinity};
use virtlens_tests::seats::{agent, judged};
use virtlens_tests::{Minivm, eventually, reader};

use crate::online;

const VCPUS: usize = 4;
const MS: u64 = 1_000_000;

/// CPU time of a vCPU's thread according to the kernel's file, ns.
fn used_ns(vm: &Minivm, tid: i32) -> u64 {
    let stat = Schedstat::read(vm.pid(), tid);
    stat.expect("the thread lives").cpu_ns
}

fn rest(vm: &Minivm) {
    for vcpu in &vm.ready.vcpus {
        let pid = vm.pid();
        eventually("the vCPU halts", || is_halted(pid, vcpu.tid).then_some(()));
    }
}

fn vcpu_of<'a>(snapshot: &'a Snapshot, vm: &Minivm, tid: i32) -> &'a Vcpu {
    let mut vcpus = reader::vm(snapshot, vm.pid()).vcpus.iter();
    let found = vcpus.find(|vcpu| vcpu.tid == Some(tid.cast_unsigned()));
    found.expect("the agent has the vCPU")
}

/// Runs a spinning vCPU on each CPU for a while.
fn visit(vm: &Minivm, tid: i32, cpus: &BTreeSet<u32>) {
    for cpu in cpus {
        set_affinity(tid, &[*cpu as usize]);
        let moved_ns = used_ns(vm, tid);
        eventually("the vCPU to run on its CPU", || {
            (used_ns(vm, tid) > moved_ns + MS).then_some(())
        });
    }
}

#[test]
fn residency_on_every_cpu_adds_up_within_map() {
    let mut vm = Minivm::start(["--vcpus", &VCPUS.to_string()]);
    let tids: Vec<i32> = vm.ready.vcpus.iter().map(|vcpu| vcpu.tid).collect();
    let mut agent = agent();
    judged(&mut agent, &vm);
    rest(&vm);
    let before = agent.collect();
    let used: Vec<u64> = tids.iter().map(|tid| used_ns(&vm, *tid)).collect();
    let online = online();
    for (index, tid) in tids.iter().enumerate() {
        vm.command(&format!("spin {index}"));
        visit(&vm, *tid, &online);
        vm.command(&format!("halt {index}"));
    }
    rest(&vm);

    let after = agent.collect();
    for (tid, used_before_ns) in tids.iter().zip(used) {
        let used_ns = used_ns(&vm, *tid) - used_before_ns;
        let then = &vcpu_of(&before, &vm, *tid).residency_ns;
        let now = &vcpu_of(&after, &vm, *tid).residency_ns;
        let ran: BTreeMap<u32, u64> = now
            .iter()
            .map(|(cpu, ns)| (*cpu, ns - then.get(cpu).unwrap_or(&0)))
            .filter(|(_, ns)| *ns > 0)
            .collect();
        let sum_ns: u64 = ran.values().sum();
        println!("{} CPUs, {sum_ns} of {used_ns} ns", ran.len());
        let cpus: BTreeSet<u32> = ran.keys().copied().collect();
        assert_eq!(cpus, online, "the vCPU ran on all of them");
        assert!(
            sum_ns.abs_diff(used_ns) <= (used_ns / 100).max(MS),
            "{sum_ns} of {used_ns} ns"
        );
    }
    let full = after
        .dropped
        .iter()
        .find(|one| one.reason == "residency_full");
    assert_eq!(full.expect("it is counted").count, 0);
    let map = after.maps.iter().find(|one| one.map == "residency");
    let map = map.expect("the map is there");
    println!("{:?} of {} entries", map.entries, map.max_entries);
}

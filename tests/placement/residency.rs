//! Residency of a vCPU, and the distance of its moves.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use virtlens_tests::process::{Schedstat, is_halted, set_affinity};
use virtlens_tests::seats::{agent, pinned};
use virtlens_tests::{Minivm, eventually, reader};

/// CPUs by distance from CPU 0: its sibling, another core, another cache, another node.
const FAR: [usize; 4] = [1, 2, 4, 8];
const ROUNDS: u64 = 40;
const MS: u64 = 1_000_000;

fn rest(vm: &Minivm) {
    let (pid, tid) = (vm.pid(), vm.ready.vcpus[0].tid);
    eventually("the vCPU halts", || is_halted(pid, tid).then_some(()));
}

/// CPU time of the vCPU's thread according to the kernel's file, ns.
fn used_ns(vm: &Minivm) -> u64 {
    let stat = Schedstat::read(vm.pid(), vm.ready.vcpus[0].tid);
    stat.expect("the thread lives on").cpu_ns
}

#[test]
fn migrations_count_by_distance_and_residency_adds_up() {
    let mut vm = pinned("none", &[0]);
    let tid = vm.ready.vcpus[0].tid;
    let mut agent = agent();
    vm.burn_vcpus("0", 1);
    rest(&vm);
    let (before, used_before_ns) = (agent.collect(), used_ns(&vm));
    vm.command("spin 0");
    for _ in 0..ROUNDS {
        for far in FAR {
            for pcpu in [far, 0] {
                set_affinity(tid, &[pcpu]);
                // The thread has to run there, not only to be moved.
                sleep(Duration::from_micros(500));
            }
        }
    }
    vm.command("halt 0");
    rest(&vm);
    let (after, used_after_ns) = (agent.collect(), used_ns(&vm));

    let moves = |snapshot| {
        reader::vm(snapshot, vm.pid())
            .moves
            .expect("they are followed")
    };
    let (then, now) = (moves(&before), moves(&after));
    let by_distance: Vec<u64> = now
        .by_distance
        .iter()
        .zip(then.by_distance)
        .map(|(now, then)| now - then)
        .collect();
    // Two moves per round: there and back.
    assert_eq!(by_distance, [2 * ROUNDS; 4], "smt, core, llc, numa");
    assert_eq!(now.unknown, then.unknown);

    let residency = |snapshot| reader::vm(snapshot, vm.pid()).vcpus[0].residency_ns.clone();
    let then: BTreeMap<u32, u64> = residency(&before);
    let ran: BTreeMap<u32, u64> = residency(&after)
        .into_iter()
        .map(|(pcpu, ns)| (pcpu, ns - then.get(&pcpu).unwrap_or(&0)))
        .collect();
    let used_ns = used_after_ns - used_before_ns;
    println!("used {used_ns} ns, by pCPU {ran:?}");
    let reported_ns: u64 = ran.values().sum();
    assert!(
        reported_ns.abs_diff(used_ns) <= (used_ns / 100).max(MS),
        "reported {reported_ns} ns, used {used_ns} ns"
    );
    for pcpu in FAR {
        let pcpu = u32::try_from(pcpu).expect("a small number");
        let ns = ran.get(&pcpu).copied().unwrap_or(0);
        assert!(ns > 0, "it ran on pCPU {pcpu}: {ran:?}");
    }
    assert_eq!(ran.len(), 1 + FAR.len(), "and nowhere else: {ran:?}");
}

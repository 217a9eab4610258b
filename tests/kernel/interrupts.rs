//! Time in interrupts on the pCPU of a vCPU, compared with /proc/stat.

use std::fs;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use virtlens_model::snapshot::Interrupts;
use virtlens_tests::process::set_affinity;
use virtlens_tests::{Minivm, eventually, reader};

/// Time in soft interrupts that a flood must take, ticks: a CPU in interrupts whenever the
/// tick samples it.
const TICKS: u64 = 10;

/// Times of CPU 0, ticks: all, hard interrupts, soft interrupts, steal.
fn times() -> [u64; 4] {
    let stat = fs::read_to_string("/proc/stat").expect("it can be read");
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu0 "));
    let times = line.expect("CPU 0 is online").split_whitespace();
    let times: Vec<u64> = times.map(|time| time.parse().expect("a number")).collect();
    [times[..8].iter().sum(), times[5], times[6], times[7]]
}

/// The share of a time between two readings that each lie between two readings of the
/// file.
fn share(
    [begin, begun]: [[u64; 4]; 2],
    [end, ended]: [[u64; 4]; 2],
    of: usize,
) -> RangeInclusive<f64> {
    let between = |from: u64, to: u64| f64::from(u32::try_from(to - from).expect("seconds"));
    let least = between(begun[of], end[of].max(begun[of])) / between(begin[0], ended[0]);
    let most = between(begin[of], ended[of]) / between(begun[0], end[0]);
    least..=most
}

/// Packets on the loopback device, which the kernel receives in soft interrupts on the
/// CPU of the sender.
fn flood(is_over: &AtomicBool) {
    set_affinity(rustix::thread::gettid().as_raw_pid(), &[0]);
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let to = receiver.local_addr().expect("it is bound");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..100 {
            // The receiver's queue is full soon; the packets are received and dropped.
            sender.send_to(&[0; 1000], to).ok();
        }
    }
}

#[test]
fn interrupts_on_pcpu_of_vcpu_equal_proc_stat() {
    if !reader::ready("interrupts_on_pcpu_of_vcpu_equal_proc_stat") {
        return;
    }
    let vm = Minivm::start(["--vcpus", "1", "--start", "spin"]);
    set_affinity(vm.ready.vcpus[0].tid, &[0]);
    let mut collector = reader::collector();
    let mut judge = || {
        let before = times();
        let snapshot = collector.collect_judged();
        let after = times();
        let vm = reader::vm(&snapshot, vm.pid());
        let topology = vm.topology.clone().expect("it is judged");
        let shown = topology.interrupts.first().map(|one| one.interrupts);
        ([before, after], shown)
    };
    // The VM's window begins with the first judgement that sees the VM.
    judge();
    let (begin, _) = judge();
    let before = times();
    let is_over = AtomicBool::new(false);
    let (end, shown) = thread::scope(|scope| {
        scope.spawn(|| flood(&is_over));
        eventually("the flood is received", || {
            (times()[2] > before[2] + TICKS).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
        judge()
    });
    let Interrupts { hard, soft, steal } = shown.expect("the vCPU ran on CPU 0");
    println!("hard {hard:.3}, soft {soft:.3}, steal {steal:.3}");
    for (of, shown) in [(1, hard), (2, soft), (3, steal)] {
        let range = share(begin, end, of);
        // Shares are in steps of 0.1 %.
        let (low, high) = (range.start() - 0.51e-3, range.end() + 0.51e-3);
        assert!((low..=high).contains(&shown), "{of}: {shown} in {range:?}");
    }
    assert!(soft > 0.0, "the flood is received in soft interrupts");
}

//! madvise of all kinds, with every call known.

use std::fs;
use std::time::Instant;

use virtlens_tests::calls::pair;
use virtlens_tests::{Minivm, TestCgroup, need, systemd_pod_path, unique_pod_uid};

use crate::{MIB, bench};

const PAGE: u64 = 4096;

fn start(mem: &str, memfd: bool) -> Minivm {
    let memfd: &[&str] = if memfd { &["--memfd"] } else { &[] };
    let args = ["--vcpus", "1", "--start", "halt", "--mem", mem];
    Minivm::start(args.into_iter().chain(memfd.iter().copied()))
}

/// A balloon that takes a GiB, page by page: 262 144 calls.
#[test]
fn inflation_by_single_pages_is_counted_exactly() {
    const PAGES: u64 = 262_144;
    let mut bench = bench();
    let mut vm = start("1G", false);
    bench.look_at(vm.pid(), 1024 * MIB);
    let began = Instant::now();
    vm.command(&format!("madvise dontneed 0 4096 {PAGES}"));
    let took_ns = began.elapsed().as_nanos();
    vm.command("madvise willneed 0 4096 1000");
    let memory = bench.agent.memory_of(vm.pid());
    let discards = memory.discards.expect("they are followed");
    assert_eq!(bench.calls.freed(false, |_| true), (PAGES, 1024 * MIB));
    assert_eq!(pair(discards.inflate), (PAGES, 1024 * MIB));
    assert_eq!(pair(discards.deflate), (1000, 1000 * PAGE));
    assert_eq!(bench.calls.wanted(), (1000, 1000 * PAGE));
    assert_eq!(discards.report.events + discards.other.events, 0);
    assert_eq!(memory.features.balloon.enabled, Some(true), "it was seen");
    // The calls follow each other without a pause and take all of the time. Each timed
    // call includes a clock read, which is slow on an emulated machine.
    let percent = u128::from(discards.inflate.ns) * 100 / took_ns;
    println!("a GiB inflated: reported {percent} % of the time that it took");
    assert!((80..=125).contains(&percent), "{percent}");
}

/// Reports, their release, and refaults, for anonymous RAM and RAM in a file.
#[test]
fn reported_memory_counts_as_refault_when_touched() {
    let mut bench = bench();
    for memfd in [false, true] {
        let mut vm = start("256M", memfd);
        bench.look_at(vm.pid(), 256 * MIB);
        let before = bench.agent.memory_of(vm.pid());
        vm.command("touch 0 64M");
        let filled = bench.agent.memory_of(vm.pid());
        if memfd {
            vm.command("punch 0 4M 16");
        }
        // In addition to the holes it is not counted a second time.
        vm.command("madvise dontneed 0 4M 16");
        let released = bench.agent.memory_of(vm.pid());
        vm.command("touch 0 32M");
        let again = bench.agent.memory_of(vm.pid());

        assert_eq!(bench.calls.freed(memfd, |_| true), (16, 64 * MIB));
        let discards = again.discards.expect("they are followed");
        assert_eq!(pair(discards.report), (16, 64 * MIB), "memfd: {memfd}");
        assert_eq!(discards.inflate.events + discards.other.events, 0);
        assert!(discards.report.ns > 0);
        let resident = |memory: &virtlens_model::snapshot::Memory| {
            memory.resident_bytes.expect("this kernel counts it")
        };
        let grown = resident(&filled) - resident(&before);
        // The program's own file pages add to this; it has loaded them by then.
        assert!(grown.abs_diff(64 * MIB) <= 8 * MIB, "{grown}");
        let fallen = resident(&filled) - resident(&released);
        assert!(about(fallen, 64 * MIB), "{fallen}");
        let refault = again.refault_bytes.expect("they are followed");
        assert_eq!(
            filled.refault_bytes,
            Some(0),
            "nothing was released by then"
        );
        assert!(about(refault, 32 * MIB), "{refault}");
        assert_eq!(again.guest_bytes.map(|bytes| bytes / MIB), Some(256));
        assert!(again.resident_peak_bytes >= filled.resident_bytes);
        println!("memfd {memfd}: refault {refault} of {}", 32 * MIB);
    }
}

/// Within 5 %: kernels keep part of the resident memory in per-CPU counters.
fn about(bytes: u64, expected: u64) -> bool {
    bytes.abs_diff(expected) <= expected / 20
}

/// Whole-range discards are a reset or a migration.
#[test]
fn discard_of_all_ram_is_other() {
    let mut bench = bench();
    let mut vm = start("64M", false);
    bench.look_at(vm.pid(), 64 * MIB);
    vm.command("madvise dontneed 0 64M 1");
    let discards = bench.agent.discards_of(vm.pid());
    assert_eq!(pair(discards.other), (1, 64 * MIB));
    assert_eq!(discards.events(), 1);
}

/// A VMM that trims its heap continuously has no balloon.
#[test]
fn vmm_heap_trim_is_not_counted() {
    let mut bench = bench();
    let mut vm = start("64M", false);
    bench.look_at(vm.pid(), 64 * MIB);
    let began = Instant::now();
    vm.command("trim 4M 30000");
    let rate = 30_000.0 / began.elapsed().as_secs_f64();
    println!("trimmed {rate:.0} times a second");
    assert!(
        bench.calls.elsewhere() >= 30_000,
        "{}",
        bench.calls.elsewhere()
    );
    let memory = bench.agent.memory_of(vm.pid());
    let discards = memory.discards.expect("they are followed");
    assert_eq!(discards.events(), 0);
    assert_eq!(discards.release_ns(), 0);
    assert_eq!(memory.refault_bytes, Some(0));
}

/// Usage and limit of a pod equal those in its files.
#[test]
fn pod_memory_equals_cgroup_files() {
    let mut bench = bench();
    let pod = TestCgroup::new(&systemd_pod_path(&unique_pod_uid()));
    pod.enable(&["memory"]);
    pod.set("memory.max", &(512 * MIB).to_string());
    let container = pod.child("cri-containerd-vm.scope");
    let mut vm = start("256M", false);
    container.add_process(vm.pid());
    bench.agent.find(vm.pid());
    vm.command("touch 0 128M");
    let used = || {
        let text = fs::read_to_string(pod.dir().join("memory.current")).expect("it is v2");
        text.trim().parse::<u64>().expect("a number")
    };
    let before = used();
    let memory = bench.agent.memory_of(vm.pid());
    let after = used();
    assert_eq!(memory.cgroup_limit_bytes, Some(512 * MIB));
    let reported = memory.cgroup_bytes.expect("the controller is on");
    // The files are read at another moment, and kernels keep some pages in per-CPU
    // counters.
    let between = before.min(after) - MIB..=before.max(after) + MIB;
    assert!(between.contains(&reported), "{reported}, {between:?}");
    assert!(reported >= 120 * MIB, "{reported}");
    drop(vm);
}

/// The pages of a `guest_memfd` count as memory of the VM's cgroup, and so towards its limit.
#[test]
fn guest_memfd_is_part_of_cgroup_memory() {
    let test = "guest_memfd_is_part_of_cgroup_memory";
    if !need::all(test, [need::guest_memfd()]) {
        return;
    }
    let mut bench = bench();
    let pod = TestCgroup::new(&systemd_pod_path(&unique_pod_uid()));
    pod.enable(&["memory"]);
    let container = pod.child("cri-containerd-vm.scope");
    let args = ["--vcpus", "1", "--guest-memfd", "64M"];
    let mut vm = Minivm::start_launch(Minivm::launch().args(args).cgroup(&container));
    bench.agent.find(vm.pid());
    let used = || {
        let text = fs::read_to_string(pod.dir().join("memory.current")).expect("it is v2");
        text.trim().parse::<u64>().expect("a number")
    };
    let empty = used();
    vm.command("guest-memfd allocate 0 48M");
    let full = used();
    let memory = bench.agent.memory_of(vm.pid());
    let reported = memory.cgroup_bytes.expect("the controller is on");
    // Kernels keep some pages in per-CPU counters.
    assert!(
        (full - empty).abs_diff(48 * MIB) <= 2 * MIB,
        "{empty}, {full}"
    );
    assert!(reported.abs_diff(full) <= 2 * MIB, "{reported}, {full}");
    assert_eq!(memory.guest_memfd_bytes, Some(48 * MIB));
    drop(vm);
}

//! KVM's counters of halts, yields, preemptions and page tables, compared with its own
//! statistics.

use std::collections::BTreeMap;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::{Halts, KvmCounters};
use virtlens_tests::kvm_stats::of_minivm;
use virtlens_tests::reader::{self, vm};
use virtlens_tests::{Minivm, eventually};

/// The sums over the vCPUs of a VM.
fn kvm(vm: &Vm) -> KvmCounters {
    let counters = vm.vcpus.iter().map(|vcpu| vcpu.kvm);
    counters.fold(KvmCounters::default(), |sum, more| {
        sum.with(&more, u64::saturating_add)
    })
}

/// Names of KVM's statistics, in the order of [`counters`].
const NAMES: [&str; 13] = [
    "halt_wakeup",
    "halt_attempted_poll",
    "halt_successful_poll",
    "halt_poll_invalid",
    "halt_wait_ns",
    "directed_yield_attempted",
    "directed_yield_successful",
    "preemption_reported",
    "pages_4k",
    "pages_2m",
    "pages_1g",
    "nx_lpage_splits",
    "remote_tlb_flush",
];

/// The counters of the agent.
fn counters(vm: &Vm) -> [Option<u64>; NAMES.len()] {
    let kvm = kvm(vm);
    let (polls, yields) = (kvm.halt_polls(), kvm.yields());
    let mapped = vm.mmu.and_then(|mmu| mmu.mapped_bytes);
    [
        kvm.halt_wakeups(),
        polls.map(|polls| polls.attempted),
        polls.map(|polls| polls.successful),
        polls.map(|polls| polls.invalid),
        kvm.halt_wait_ns(),
        yields.map(|yields| yields.attempted),
        yields.map(|yields| yields.successful),
        kvm.preemptions_reported(),
        mapped.map(|mapped| mapped.by_4k >> 12),
        mapped.map(|mapped| mapped.by_2m >> 21),
        mapped.map(|mapped| mapped.by_1g >> 30),
        vm.mmu.map(|mmu| mmu.nx_splits),
        vm.mmu.map(|mmu| mmu.tlb_flushes),
    ]
}

/// Compares the counters of an idle VM with KVM's own, once they do not change meanwhile.
/// Returns those that this kernel has, by name.
fn compared(collector: &mut Collector, guest: &mut Minivm) -> BTreeMap<&'static str, u64> {
    let pid = guest.pid();
    eventually("KVM's statistics are constant for a reading", || {
        let before = of_minivm(guest, NAMES);
        let found = counters(vm(&collector.collect(), pid));
        if before != of_minivm(guest, NAMES) {
            return None;
        }
        assert_eq!(found, before, "process {pid}: {NAMES:?}");
        let known = NAMES.into_iter().zip(found);
        Some(
            known
                .filter_map(|(name, value)| Some((name, value?)))
                .collect(),
        )
    })
}

#[test]
fn counters_of_halts_and_page_tables_equal_statistics_of_kvm() {
    if !reader::ready("counters_of_halts_and_page_tables_equal_statistics_of_kvm") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--start", "duty:30"]);
    guest.wait_for_cpu(&[0, 1], 30);
    let mut collector = reader::collector();
    collector.collect();
    guest.command("halt all");
    let first = compared(&mut collector, &mut guest);
    guest.command("duty 30 all");
    guest.wait_for_cpu(&[0, 1], 30);
    guest.command("halt all");
    let second = compared(&mut collector, &mut guest);
    // Kicks end the halts of this guest. They are no wake-ups, so only the time of its halts
    // grows, which KVM counts since v5.15.
    if let Some(before_ns) = first.get("halt_wait_ns") {
        let now_ns = second["halt_wait_ns"];
        assert!(now_ns > *before_ns, "{first:?}, then {second:?}");
    }
}

/// KVM keeps the counters of a vCPU until its VM ends.
#[test]
fn counters_of_unplugged_vcpu_are_kept() {
    if !reader::ready("counters_of_unplugged_vcpu_are_kept") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--start", "duty:30"]);
    guest.wait_for_cpu(&[0, 1], 30);
    let mut collector = reader::collector();
    collector.collect();
    guest.command("halt all");
    guest.unplug(1);
    let counters = compared(&mut collector, &mut guest);
    assert!(counters.contains_key("halt_wakeup"), "{counters:?}");
}

/// Sums of the vCPUs' histograms by the names of KVM's statistics.
fn halts_of(guest: &mut Minivm) -> Option<Halts> {
    let reply = guest.command("stats");
    let vcpus = reply["vcpus"].as_object().expect("an object of vCPUs");
    let histogram = |name: &str| {
        let mut sum = [0u64; 32];
        for vcpu in vcpus.values() {
            let counts = vcpu[name].as_array().expect("a histogram");
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum += count.as_u64().expect("a count");
            }
        }
        sum
    };
    (!vcpus.is_empty()).then(|| Halts {
        poll_success: histogram("halt_poll_success_hist"),
        poll_fail: histogram("halt_poll_fail_hist"),
        wait: histogram("halt_wait_hist"),
    })
}

#[test]
fn histograms_of_halts_equal_statistics_of_kvm() {
    if !reader::ready("histograms_of_halts_equal_statistics_of_kvm") {
        return;
    }
    let mut guest = Minivm::start(["--vcpus", "2", "--start", "duty:30"]);
    guest.wait_for_cpu(&[0, 1], 30);
    let mut collector = reader::collector_with(&Options {
        halt_series: true,
        ..reader::options()
    });
    guest.command("halt all");
    let pid = guest.pid();
    let found = eventually("the histograms equal KVM's", || {
        let before = halts_of(&mut guest);
        let found = vm(&collector.collect(), pid).halts.as_deref().copied();
        (before == halts_of(&mut guest)).then(|| {
            assert_eq!(found, before);
            found
        })
    });
    // Before v5.15 KVM has no histograms.
    if let Some(halts) = found {
        let slept: u64 = halts.wait.iter().sum();
        assert!(slept > 0, "{halts:?}");
    }
    let mut plain = reader::collector();
    assert_eq!(vm(&plain.collect(), pid).halts, None);
}

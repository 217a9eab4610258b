//! The balloon, compared with `virsh dommemstat`.

use std::collections::HashMap;

use virtlens_tests::eventually;

use crate::agent::vm;
use crate::{Bench, DB, bench};

const KIB: u64 = 1024;
const FULL_KIB: u64 = 256 * 1024;

/// Values of `virsh dommemstat`, KiB, by name.
fn dommemstat(bench: &Bench) -> HashMap<String, u64> {
    let text = bench.libvirt.virsh(&format!("dommemstat {DB}"));
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    let numbers = pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)));
    numbers.collect()
}

/// Size of the balloon by the agent's counters of inflated and deflated bytes.
fn balloon_bytes(bench: &mut Bench) -> u64 {
    let snapshot = bench.agent.read();
    let discards = vm(&snapshot, DB).memory.discards;
    let discards = discards.expect("they are followed");
    discards.inflate.bytes - discards.deflate.bytes
}

#[test]
fn balloon_set_by_virsh_is_counted_to_the_byte() {
    let mut bench = bench();
    let empty = balloon_bytes(&mut bench);
    for mib in [240, 256] {
        bench.libvirt.virsh(&format!("setmem {DB} {mib}M --live"));
        eventually("the balloon", || {
            (dommemstat(&bench)["actual"] == mib * KIB).then_some(())
        });
        let holds = balloon_bytes(&mut bench) - empty;
        assert_eq!(holds, (FULL_KIB - mib * KIB) * KIB, "at {mib} MiB");
    }
    bench.assert_no_counter_fell();
}

#[test]
fn guest_and_resident_memory_equal_dommemstat() {
    let mut bench = bench();
    let before = dommemstat(&bench);
    let snapshot = bench.agent.read();
    let after = dommemstat(&bench);
    let memory = &vm(&snapshot, DB).memory;
    assert!(
        memory.guest_bytes >= Some(before["actual"] * KIB),
        "{memory:?}"
    );
    let resident_kib = memory.resident_bytes.expect("this kernel counts it") / KIB;
    let (low, high) = (
        before["rss"].min(after["rss"]),
        before["rss"].max(after["rss"]),
    );
    // The kernel's per-process counters lag by some pages per CPU.
    let range = low - low / 50..=high + high / 50;
    assert!(
        range.contains(&resident_kib),
        "{resident_kib} KiB, {range:?}"
    );
}

#[test]
fn free_page_reporting_of_the_domain_is_seen() {
    let mut bench = bench();
    let reported = |bench: &mut Bench| {
        let snapshot = bench.agent.read();
        let discards = vm(&snapshot, DB).memory.discards;
        discards.expect("they are followed").report.bytes
    };
    let before = reported(&mut bench);
    bench.guest.order("fill 32");
    bench.guest.order("empty it");
    eventually("reports of what was freed", || {
        (reported(&mut bench) >= before + (24 << 20)).then_some(())
    });
}

//! The memory of a Linux guest: taken, freed, reported, taken again.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use virtlens_model::snapshot::Memory;
use virtlens_tests::calls::pair;
use virtlens_tests::eventually;

use crate::guest::{Guest, Ram};
use crate::{Agent, Bench, MIB, bench};

/// RAM of the guest, and the parts that it takes and frees.
const GUEST_MIB: u64 = 192;
const FILL_MIB: u64 = 64;

/// Longer than a guest waits before it reports (2 s, `mm/page_reporting.c`).
const QUIET: Duration = Duration::from_millis(3500);

/// Reads until `reported` has been reached and nothing more is reported for `quiet`.
fn at_rest(agent: &mut Agent, pid: u32, reported: u64, quiet: Duration) -> Memory {
    let report = |memory: &Memory| memory.discards.expect("they are followed").report;
    eventually("reports", || {
        (report(&agent.memory_of(pid)).bytes >= reported).then_some(())
    });
    let mut before = agent.memory_of(pid);
    loop {
        sleep(quiet);
        let now = agent.memory_of(pid);
        if report(&now) == report(&before) {
            return now;
        }
        before = now;
    }
}

fn resident(memory: &Memory) -> u64 {
    memory.resident_bytes.expect("this kernel counts it")
}

/// Lower bound: 5 % less than the guest was ordered to take, bytes.
fn at_least(mib: u64) -> u64 {
    mib * MIB / 20 * 19
}

fn cycle(bench: &mut Bench, ram: Ram, times: u32) {
    let (agent, calls) = (&mut bench.agent, &bench.calls);
    let mut guest = Guest::start(ram, GUEST_MIB, true, |pid| agent.find(pid));
    let pid = guest.pid();
    agent.find(pid);
    // The guest first reports the memory that its boot did not use.
    let mut rest = at_rest(agent, pid, FILL_MIB * MIB, QUIET);
    calls.watch(pid, GUEST_MIB * MIB);
    let start = agent.discards_of(pid);
    assert_eq!(Some(start), rest.discards, "it rests");
    for _ in 0..times {
        guest.order(&format!("fill {FILL_MIB}"));
        let filled = agent.memory_of(pid);
        guest.order("empty it");
        let reported = rest.discards.expect("they are followed").report.bytes;
        let reported = reported + FILL_MIB * MIB;
        let now = at_rest(agent, pid, reported, Duration::from_secs(1));
        let refault = |memory: &Memory| memory.refault_bytes.expect("followed");
        let taken = refault(&filled) - refault(&rest);
        let grown = resident(&filled) - resident(&rest);
        let fallen = resident(&filled).saturating_sub(resident(&now));
        println!(
            "{ram:?}: resident {} -> {} -> {}, taken again {taken}, reported {:?}",
            resident(&rest),
            resident(&filled),
            resident(&now),
            now.discards.map(|one| pair(one.report)),
        );
        assert!(
            taken.abs_diff(grown) <= FILL_MIB * MIB / 20,
            "{ram:?}: taken again {taken}, resident grew by {grown}"
        );
        assert!(
            taken.abs_diff(FILL_MIB * MIB) <= FILL_MIB * MIB / 20,
            "{ram:?}: taken again {taken}"
        );
        assert!(fallen >= at_least(FILL_MIB), "{ram:?}: fallen {fallen}");
        rest = now;
    }
    let end = rest.discards.expect("they are followed");
    let (events, bytes) = pair(end.report);
    let since = (events - start.report.events, bytes - start.report.bytes);
    let file = ram != Ram::Anonymous;
    assert_eq!(since, calls.freed(file, |len| len >= 2 * MIB), "{ram:?}");
    assert!(since.1 >= u64::from(times) * FILL_MIB * MIB, "{since:?}");
    assert_eq!(end.inflate.events + end.deflate.events, 0, "{end:?}");
    assert_eq!(rest.features.free_page_reporting.enabled, Some(true));
    let guest_mib = rest.guest_bytes.expect("its memslots are known") / MIB;
    assert!(
        (GUEST_MIB - 1..=GUEST_MIB + 1).contains(&guest_mib),
        "{guest_mib}"
    );
    assert!(rest.faults.is_some_and(|faults| faults > 0));
}

#[test]
fn reported_free_pages_of_anonymous_ram_refault() {
    cycle(&mut bench(), Ram::Anonymous, 4);
}

#[test]
fn reported_free_pages_of_memfd_refault() {
    cycle(&mut bench(), Ram::Memfd, 1);
}

#[test]
fn reported_free_huge_pages_refault() {
    let mut bench = bench();
    let pages = GUEST_MIB / 2;
    fs::write("/proc/sys/vm/nr_hugepages", (pages + 2).to_string()).expect("it is root");
    cycle(&mut bench, Ram::HugePages, 1);
    fs::write("/proc/sys/vm/nr_hugepages", "0").expect("it is root");
}

/// A third of its RAM is reported and taken again within a minute: that is the only
/// finding. At rest there is none.
#[test]
fn guest_that_refaults_reported_memory_is_found() {
    let mut bench = bench();
    let Bench { agent, calls } = &mut *bench;
    let mut guest = Guest::start(Ram::Anonymous, GUEST_MIB, true, |pid| agent.find(pid));
    let pid = guest.pid();
    at_rest(agent, pid, FILL_MIB * MIB, QUIET);
    agent.judge(pid);
    sleep(QUIET);
    assert_eq!(agent.judge(pid), BTreeSet::new(), "it rests");
    calls.watch(pid, GUEST_MIB * MIB);
    guest.order(&format!("fill {FILL_MIB}"));
    guest.order("empty it");
    eventually("reports", || {
        sleep(Duration::from_millis(100));
        (calls.freed(false, |len| len >= 2 * MIB).1 >= FILL_MIB * MIB).then_some(())
    });
    assert_eq!(agent.judge(pid), BTreeSet::from(["reporting_churn"]));
}

/// Without free page reporting, freed memory is not given back; only memory that the
/// balloon takes is.
#[test]
fn balloon_is_counted_per_page_without_reports() {
    const TAKEN_MIB: u64 = 64;
    let mut bench = bench();
    let bench = &mut *bench;
    let mut guest = Guest::start(Ram::Anonymous, GUEST_MIB, false, drop);
    let pid = guest.pid();
    bench.look_at(pid, GUEST_MIB * MIB);
    let (agent, calls) = (&mut bench.agent, &bench.calls);
    guest.order(&format!("fill {FILL_MIB}"));
    guest.order("empty it");
    sleep(QUIET);
    let filled = agent.memory_of(pid);
    assert_eq!(filled.discards.expect("followed").events(), 0);
    assert_eq!(filled.refault_bytes, Some(0));
    guest.balloon(GUEST_MIB - TAKEN_MIB);
    guest.wait_for_balloon(GUEST_MIB - TAKEN_MIB);
    let taken = agent.memory_of(pid);
    guest.balloon(GUEST_MIB);
    guest.wait_for_balloon(GUEST_MIB);
    let given = agent.memory_of(pid);
    let discards = given.discards.expect("followed");
    assert_eq!(pair(discards.inflate), calls.freed(false, |_| true));
    assert_eq!(pair(discards.deflate), calls.wanted());
    assert_eq!(discards.inflate.bytes, TAKEN_MIB * MIB);
    assert_eq!(discards.deflate.bytes, TAKEN_MIB * MIB);
    assert_eq!(discards.report.events + discards.other.events, 0);
    assert!(resident(&taken) < resident(&filled));
    assert_eq!(given.features.free_page_reporting.enabled, Some(false));
    assert_eq!(given.features.balloon.enabled, Some(true));
    println!(
        "{TAKEN_MIB} MiB inflated: {} ms",
        discards.inflate.ns / 1_000_000
    );
}

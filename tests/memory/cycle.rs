//! The memory of a Linux guest: taken, freed, reported, taken again.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use virtlens_model::memory::Memory;
use virtlens_tests::eventually;

use crate::calls::pair;
use crate::guest::{Guest, Ram};
use crate::{Agent, Bench, MIB, bench};

/// What a guest has, and what it takes and frees of it.
const GUEST_MIB: u64 = 192;
const FILL_MIB: u64 = 64;

/// Longer than a guest waits before it reports (2 s, `mm/page_reporting.c`).
const QUIET: Duration = Duration::from_millis(3500);

/// Reads until so much has been reported, and nothing more for a while.
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
    memory.resident_bytes.expect("this kernel tells")
}

/// 5 % more than the guest was told to take, bytes.
fn at_most(mib: u64) -> u64 {
    mib * MIB / 20 * 21
}

/// 5 % less.
fn at_least(mib: u64) -> u64 {
    mib * MIB / 20 * 19
}

fn cycle(bench: &mut Bench, ram: Ram, times: u32) {
    let mut guest = Guest::start(ram, GUEST_MIB, true);
    let pid = guest.pid();
    bench.look_at(pid, GUEST_MIB * MIB);
    let (agent, calls) = (&mut bench.agent, &bench.calls);
    let start = agent.discards_of(pid);
    // What it takes the first time was never released by a report.
    guest.order(&format!("fill {FILL_MIB}"));
    guest.order("empty it");
    let mut rest = at_rest(agent, pid, start.report.bytes + FILL_MIB * MIB, QUIET);
    let mut taken_before = rest.refault_bytes.expect("followed");
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
        // From one fill to the next, with what it took while it rested.
        let taken_in_all = refault(&filled) - taken_before;
        taken_before = refault(&filled);
        let fallen = resident(&filled).saturating_sub(resident(&now));
        let came_back = refault(&now) - refault(&filled);
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
        // The host gives 2 MiB at once where a resting guest touches a page of
        // them, and of those it may fill some later: what it fills lies between.
        assert!(
            taken <= at_most(FILL_MIB) && taken_in_all >= at_least(FILL_MIB),
            "{ram:?}: taken again {taken}, {taken_in_all} since the last time"
        );
        assert!(
            fallen + came_back >= at_least(FILL_MIB),
            "{ram:?}: fallen {fallen}, of which {came_back} came back"
        );
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
fn free_pages_of_anonymous_ram_are_reported_and_come_back() {
    cycle(&mut bench(), Ram::Anonymous, 4);
}

#[test]
fn free_pages_of_a_memfd_are_reported_once_and_come_back() {
    cycle(&mut bench(), Ram::Memfd, 1);
}

#[test]
fn free_pages_of_huge_pages_are_reported_and_come_back() {
    let mut bench = bench();
    let pages = GUEST_MIB / 2;
    fs::write("/proc/sys/vm/nr_hugepages", (pages + 2).to_string()).expect("it is root");
    cycle(&mut bench, Ram::HugePages, 1);
    fs::write("/proc/sys/vm/nr_hugepages", "0").expect("it is root");
}

/// Without reporting: what is freed is not given back, what the balloon takes
/// is.
#[test]
fn a_balloon_is_followed_page_by_page_and_no_reports_are_seen() {
    const TAKEN_MIB: u64 = 64;
    let mut bench = bench();
    let bench = &mut *bench;
    let mut guest = Guest::start(Ram::Anonymous, GUEST_MIB, false);
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
        "{TAKEN_MIB} MiB inflated: {} ms inside of the kernel",
        discards.inflate.ns / 1_000_000
    );
}

/// What the programs add to a balloon that inflates, in pairs with and without
/// them: 3 % at most. They add more as yet. By hand, on a machine that does
/// nothing else:
/// `vmtest --kernel NAME --exec pairs=PROGRAM --ignored --nocapture`.
#[test]
#[ignore = "a measurement of some minutes"]
fn inflating_takes_as_long_with_the_agent_as_without() {
    const RAM_MIB: u64 = 384;
    const TAKEN_MIB: u64 = 128;
    let mut guest = Guest::start(Ram::Anonymous, RAM_MIB, false);
    let mut inflate = || {
        guest.order(&format!("fill {TAKEN_MIB}"));
        guest.order("empty it");
        let began = Instant::now();
        guest.balloon(RAM_MIB - TAKEN_MIB);
        guest.wait_for_balloon(RAM_MIB - TAKEN_MIB);
        let took = began.elapsed();
        guest.balloon(RAM_MIB);
        guest.wait_for_balloon(RAM_MIB);
        took.as_secs_f64()
    };
    inflate();
    let mut ratios: Vec<f64> = Vec::new();
    for pair in 0..6 {
        let mut took = [0.0; 2];
        // First and second take turns, as a machine may drift.
        for turn in [pair % 2, 1 - pair % 2] {
            let agent = (turn == 0).then(|| {
                let mut agent = Agent::new();
                agent.0.collect();
                agent
            });
            took[turn] = inflate();
            drop(agent);
        }
        let [with, without] = took;
        println!("{TAKEN_MIB} MiB: {with:.3} s with, {without:.3} s without");
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    let median = f64::midpoint(ratios[2], ratios[3]);
    assert!(median <= 1.03, "{median:.3} times as long: {ratios:?}");
}

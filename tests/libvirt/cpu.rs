//! CPU time against `virsh domstats`.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;

use crate::agent::vm;
use crate::domain::Threads;
use crate::{Bench, DB, bench};

/// libvirt reads thread times from `/proc/PID/task/TID/stat`, which has ticks of user and
/// of system time: 4 ms on Debian, shown as 10 ms.
const TICKS_NS: u64 = 20_000_000;

fn domstats(bench: &Bench) -> HashMap<String, u64> {
    let text = bench
        .libvirt
        .virsh(&format!("domstats --cpu-total --vcpu {DB}"));
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let numbers = pairs.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?)));
    numbers.collect()
}

#[test]
fn vcpu_time_is_between_two_domstats() {
    let mut bench = bench();
    bench.under("cpu", |bench| {
        sleep(Duration::from_secs(1));
        let low = domstats(bench);
        let snapshot = bench.agent.read();
        let high = domstats(bench);
        for id in 0..2u32 {
            let key = format!("vcpu.{id}.time");
            let vcpus = &vm(&snapshot, DB).vcpus;
            let vcpu = vcpus.iter().find(|vcpu| vcpu.id == id);
            let cpu_ns = vcpu.expect("it runs").cpu_ns;
            println!("{key}: {} <= {cpu_ns} <= {}", low[&key], high[&key]);
            assert!(
                low[&key] <= cpu_ns && cpu_ns <= high[&key] + TICKS_NS,
                "{key}: {cpu_ns}"
            );
        }
    });
}

/// `cpu.time` is the CPU time of the domain's cgroup; threads outside of it are missing.
#[test]
fn sum_of_roles_equals_domstats_cpu_time() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let outside_ns = |_: &Bench| Schedstat::sum(threads.virtiofsd[1]).cpu_ns;
    let read = |bench: &mut Bench| {
        let low = domstats(bench)["cpu.time"];
        let outside_low = outside_ns(bench);
        let snapshot = bench.agent.read();
        let outside_high = outside_ns(bench);
        let high = domstats(bench)["cpu.time"];
        let vm = vm(&snapshot, DB);
        let roles: u64 = vm.roles.iter().map(|role| role.cpu_ns).sum();
        (
            low + outside_low,
            roles + vm.unattributed_cpu_ns,
            high + outside_high,
        )
    };
    let first = read(&mut bench);
    for load in ["cpu", "virtiofs", "disk"] {
        bench.under(load, |_| sleep(Duration::from_millis(1500)));
    }
    let last = read(&mut bench);
    let (low, high) = (last.0 - first.2, last.2 - first.0);
    let reported = last.1 - first.1;
    println!(
        "agent {} ms, domstats {}..{} ms",
        reported / 1_000_000,
        low / 1_000_000,
        high / 1_000_000
    );
    let tolerance = (low / 100).max(TICKS_NS);
    assert!(
        (low.saturating_sub(tolerance)..=high + tolerance).contains(&reported),
        "agent {reported} ns, domstats {low}..{high} ns"
    );
}

fn assert_found(load: &'static str, role: Role) {
    let mut bench = bench();
    let used = |bench: &mut Bench| {
        let snapshot = bench.agent.read();
        let mut roles = vm(&snapshot, DB).roles.iter();
        let found = roles.find(|one| one.role == role);
        found.map_or(0, |one| one.cpu_ns)
    };
    let before = used(&mut bench);
    bench.under(load, |_| sleep(Duration::from_secs(2)));
    let ms = (used(&mut bench) - before) / 1_000_000;
    println!("{load}: {ms} ms of role {}", role.name());
    assert!(ms >= 20, "{load}: {ms} ms of role {}", role.name());
}

#[test]
fn disk_load_is_charged_to_iothread() {
    assert_found("disk", Role::Iothread);
}

#[test]
fn virtiofs_load_is_charged_to_virtiofsd() {
    assert_found("virtiofs", Role::Virtiofsd);
}

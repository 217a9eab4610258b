//! Limits of each kind of thread, compared with `cpu.stat` of each cgroup.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use virtlens_model::judge::interval::Interval;
use virtlens_model::snapshot::Quota;

use crate::agent::vm;
use crate::domain::{CpuStat, Threads, cgroup_of, global_cgroup, limited_cgroups};
use crate::guest::Guest;
use crate::{Bench, DB, bench};

/// Some periods of 100 ms.
const WINDOW: Duration = Duration::from_millis(2500);

fn level<'a>(levels: &'a [Quota], cgroup: &str) -> &'a Quota {
    let mut found = levels.iter().filter(|one| &*one.cgroup == cgroup);
    let paths = || levels.iter().map(|one| &*one.cgroup).collect::<Vec<_>>();
    let level = found.next();
    let level = level.unwrap_or_else(|| panic!("no level {cgroup}: {:?}", paths()));
    assert!(found.next().is_none(), "{cgroup} twice: {:?}", paths());
    level
}

/// Reads the agent between two readings of `cpu.stat` and compares them.
fn assert_is_cpu_stat(bench: &mut Bench, cgroups: &[String], cores: f64) {
    let stat = || {
        cgroups
            .iter()
            .map(|path| CpuStat::of(path))
            .collect::<Vec<_>>()
    };
    let before = stat();
    let snapshot = bench.agent.read();
    let after = stat();
    let bounds = before.iter().zip(&after);
    for (cgroup, (low, high)) in cgroups.iter().zip(bounds) {
        let level = level(&vm(&snapshot, DB).quota, cgroup);
        let us = level.throttled_ns / 1000;
        println!("{cgroup}: {low:?} {high:?}");
        assert_eq!(level.cores, Some(cores), "{cgroup}");
        let is_within = |low: u64, value: u64, high: u64| low <= value && value <= high;
        assert!(
            is_within(low.periods, level.periods, high.periods),
            "{level:?}"
        );
        assert!(
            is_within(low.throttled, level.throttled_periods, high.throttled),
            "{level:?}"
        );
        assert!(
            is_within(low.throttled_us, us, high.throttled_us),
            "{level:?}"
        );
    }
}

/// Asserts that `work` throttles each of these cgroups, and that the agent shows their
/// `cpu.stat`.
fn assert_throttled(bench: &mut Bench, cgroups: &[String], cores: f64, work: impl FnOnce()) {
    let stood = || {
        cgroups
            .iter()
            .map(|path| CpuStat::of(path).throttled)
            .collect::<Vec<_>>()
    };
    let before = stood();
    work();
    for ((cgroup, before), after) in cgroups.iter().zip(before).zip(stood()) {
        assert!(
            after > before,
            "{cgroup}: not throttled, so this shows nothing"
        );
    }
    assert_is_cpu_stat(bench, cgroups, cores);
}

#[test]
fn each_cgroup_with_a_limit_is_a_level() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let of_vm = [&threads.vcpus[..], &threads.iothreads, &[threads.vmm]].concat();
    let truth = limited_cgroups(&of_vm);
    assert_eq!(
        truth.len(),
        5,
        "vcpu0, vcpu1, iothread1, emulator, global: {truth:?}"
    );
    let snapshot = bench.agent.read();
    let levels = vm(&snapshot, DB).quota.iter();
    let levels = levels.filter_map(|one| Some((one.cgroup.to_string(), one.cores?)));
    let levels: BTreeMap<String, f64> = levels.collect();
    let cores = |us: &u64| f64::from(u32::try_from(*us).expect("a short period")) / 1e5;
    let truth: BTreeMap<String, f64> = truth
        .iter()
        .map(|(path, us)| (path.clone(), cores(us)))
        .collect();
    assert_eq!(levels, truth);
}

#[test]
fn vcpu_quota_throttling_equals_cpu_stat() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let cgroups: Vec<String> = threads.vcpus.iter().map(|tid| cgroup_of(*tid)).collect();
    bench.under("cpu", |bench| {
        bench.with_limits(&[("vcpu_quota", 30_000)], |bench| {
            assert_throttled(bench, &cgroups, 0.3, || sleep(WINDOW));
        });
    });
    bench.assert_no_counter_fell();
}

#[test]
fn global_quota_throttling_equals_cpu_stat() {
    let mut bench = bench();
    let cgroup = global_cgroup(&Threads::of(&bench.libvirt));
    bench.under("cpu", |bench| {
        bench.with_limits(&[("global_quota", 40_000)], |bench| {
            assert_throttled(bench, &[cgroup], 0.4, || sleep(WINDOW));
        });
    });
}

#[test]
fn emulator_quota_throttling_of_vhost_equals_cpu_stat() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let cgroup = cgroup_of(threads.vhost[0]);
    assert_eq!(
        cgroup,
        cgroup_of(threads.vmm),
        "vhost sits with the emulator"
    );
    bench.with_limits(&[("emulator_quota", 5_000)], |bench| {
        let flood = Guest::flood();
        assert_throttled(bench, &[cgroup], 0.05, || sleep(WINDOW));
        drop(flood);
    });
}

#[test]
fn iothread_quota_throttling_equals_cpu_stat() {
    let mut bench = bench();
    let cgroup = cgroup_of(Threads::of(&bench.libvirt).iothreads[0]);
    bench.under("disk", |bench| {
        bench.with_limits(&[("iothread_quota", 2_000)], |bench| {
            assert_throttled(bench, &[cgroup], 0.02, || sleep(WINDOW));
        });
    });
}

/// Only the second vCPU is busy, under its own limit of 0.3 cores.
#[test]
fn vcpu_under_its_own_limit_is_capped_and_not_starved() {
    let mut bench = bench();
    let vcpus = Threads::of(&bench.libvirt).vcpus;
    let throttled = |vcpu: usize| CpuStat::of(&cgroup_of(vcpus[vcpu])).throttled;
    let before = [0, 1].map(throttled);
    let found = bench.under("cpu1", |bench| {
        bench.with_limits(&[("vcpu_quota", 30_000)], |bench| {
            bench.agent.findings(DB, || sleep(2 * WINDOW))
        })
    });
    let periods = [throttled(0) - before[0], throttled(1) - before[1]];
    println!("periods throttled, by vCPU: {periods:?}");
    assert!(
        periods[1] > 10 * periods[0],
        "only the second works: {periods:?}"
    );
    assert!(found.contains(&"quota_capped"), "{found:?}");
    assert!(!found.contains(&"vcpu_starved"), "{found:?}");
}

#[test]
fn flooded_vhost_under_the_emulators_limit_is_throttled_io() {
    let mut bench = bench();
    let found = bench.with_limits(&[("emulator_quota", 5_000)], |bench| {
        let flood = Guest::flood();
        let found = bench.agent.findings(DB, || sleep(2 * WINDOW));
        drop(flood);
        found
    });
    assert!(found.contains(&"io_throttled"), "{found:?}");
}

/// 0.3 cores per vCPU are less than the global limit of 0.4, but the global limit holds
/// two busy vCPUs back.
#[test]
fn binding_limit_is_not_the_lowest() {
    let mut bench = bench();
    let cgroup = global_cgroup(&Threads::of(&bench.libvirt));
    let limits = [("vcpu_quota", 30_000), ("global_quota", 40_000)];
    let [before, after] = bench.under("cpu", |bench| {
        bench.with_limits(&limits, |bench| {
            let before = bench.agent.read();
            sleep(WINDOW);
            [before, bench.agent.read()]
        })
    });
    let length_ns = after.clock_ns - before.clock_ns;
    let over = Interval::between(vm(&before, DB), vm(&after, DB), length_ns);
    let binding = over.binding().expect("it has limits");
    assert_eq!(&*binding.now.cgroup, cgroup);
    assert_eq!(binding.now.cores, Some(0.4));
}

//! Runs the agent with real pods inside a VM of tests/vm: nested KVM guests with
//! vhost-net, virtiofsd, iothreads and quotas, on each Debian kernel.
//!
//! The rig describes the pods in a file. All expectations come from that file and from
//! the kernel's counters, never from the agent.

#![expect(unsafe_code, reason = "closures between fork and exec")]

#[path = "../kernel/capabilities.rs"]
mod capabilities;
mod cost;
mod doctor;
mod features;
#[path = "../kernel/guest_memory.rs"]
mod guest_memory;
#[path = "../kernel/interrupts.rs"]
mod interrupts;
#[path = "../kernel/kata.rs"]
mod kata;
#[path = "../kernel/kvm_stats.rs"]
mod kvm_stats;
#[path = "../kernel/loaders.rs"]
mod loaders;
mod pod_memory;
mod pods;
mod pressure;
#[path = "../kernel/ready.rs"]
mod ready;
mod realtime;
mod series;
mod shapes;
mod throttle;
mod trace;
mod vhost;
#[path = "../kernel/walk.rs"]
mod walk;

use std::thread::sleep;
use std::time::Duration;

use pods::{Reader, accounted, burned, millis};
use virtlens_model::vocab::Role;
use virtlens_tests::process::Schedstat;
use virtlens_tests::{eventually, reader};

#[test]
fn every_thread_has_expected_role() {
    let mut reader = Reader::new();
    let snapshot = reader.read();
    for pod in reader.scenario.pods.values() {
        let vm = pods::vm(&snapshot, pod);
        let of_role = |role| -> Vec<u32> {
            let mut tids: Vec<u32> = vm
                .threads
                .iter()
                .filter(|one| one.role == Some(role))
                .map(|one| one.tid)
                .collect();
            tids.sort_unstable();
            tids
        };
        let sorted = |tids: &[u32]| {
            let mut tids = tids.to_vec();
            tids.sort_unstable();
            tids
        };
        assert_eq!(
            of_role(Role::Vcpu),
            sorted(&pod.vcpu_tids),
            "vCPUs of {}",
            vm.vm
        );
        assert_eq!(
            of_role(Role::Vhost),
            sorted(&pod.vhost_tids()),
            "vhost workers of {}",
            vm.vm
        );
        assert_eq!(vm.uid.as_deref(), Some(&*pod.uid));
        assert_eq!(vm.vmm, "qemu");
    }
    let named = pods::vm(&snapshot, reader.named());
    let iothreads: Vec<u32> = named
        .threads
        .iter()
        .filter(|thread| thread.role == Some(Role::Iothread))
        .map(|thread| thread.tid)
        .collect();
    assert_eq!(
        iothreads,
        reader.named().iothread_tids,
        "iothreads are recognized by their names"
    );
    let virtiofsd = pods::role(named, Role::Virtiofsd).expect("the pod has a virtiofsd");
    let tids: usize = reader
        .named()
        .virtiofsd_pids
        .iter()
        .map(|pid| virtlens_tests::process::tids(*pid).len())
        .sum();
    assert_eq!(
        virtiofsd.threads as usize, tids,
        "virtiofsd is found in its own container"
    );
}

/// The threads are idle before and after, so the CPU time of the burn is known exactly.
#[test]
fn burn_of_each_kind_is_measured_to_the_millisecond() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let virtiofsd: Vec<(u32, i32)> = pod
        .virtiofsd_pids
        .iter()
        .flat_map(|pid| {
            virtlens_tests::process::tids(*pid)
                .into_iter()
                .map(|tid| (*pid, tid))
        })
        .collect();
    let vcpus: Vec<(u32, i32)> = pod
        .vcpu_tids
        .iter()
        .map(|tid| (pod.vmm_pid, tid.cast_signed()))
        .collect();
    let vhost: Vec<(u32, i32)> = pod
        .vhost_tids()
        .iter()
        .map(|tid| (*tid, tid.cast_signed()))
        .collect();
    for (load, role, threads) in [
        ("cpu", Role::Vcpu, vcpus),
        ("vhost", Role::Vhost, vhost),
        ("virtiofs", Role::Virtiofsd, virtiofsd),
    ] {
        let before = reader.at_rest(&threads);
        reader.under(load, || sleep(Duration::from_secs(2)));
        let after = reader.at_rest(&threads);
        let truth = burned(&before.truth, &after.truth);
        let reported = accounted(&before.snapshot, &after.snapshot, &pod, role);
        println!("{load}: {} ms of role {}", millis(truth), role.name());
        assert!(
            truth > 20_000_000,
            "{load} burned only {truth} ns: it is no load"
        );
        assert!(
            reported.abs_diff(truth) <= 1_000_000,
            "{load}: reported {reported} ns, burned {truth} ns"
        );
    }
}

/// Ten seconds under one load after another. Not all at once: two emulated CPUs that also
/// emulate KVM then hang for minutes (seen with QEMU 7.2).
#[test]
fn sum_of_roles_equals_pod_cgroup_usage() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    let first = reader.read_beside_usage(&pod);
    for load in ["cpu", "vhost", "virtiofs", "disk"] {
        reader.under(load, || sleep(Duration::from_millis(2500)));
    }
    let last = reader.read_beside_usage(&pod);
    let reported = reader::all_ns(&last.vm) - reader::all_ns(&first.vm);
    // CPU time of the pod between the two readings lies between these.
    let low = last.usage_ns.start() - first.usage_ns.end();
    let high = last.usage_ns.end() - first.usage_ns.start();
    println!(
        "reported {} ms, used {}..{} ms",
        millis(reported),
        millis(low),
        millis(high)
    );
    let tolerance = (low / 200).max(20_000_000);
    assert!(
        (low.saturating_sub(tolerance)..=high + tolerance).contains(&reported),
        "reported {reported} ns, used {low}..{high} ns"
    );
    assert!(
        high - low < 200_000_000,
        "used {low}..{high} ns says nothing"
    );
    let unattributed = last.vm.unattributed_cpu_ns - first.vm.unattributed_cpu_ns;
    assert!(
        unattributed * 200 <= low,
        "{unattributed} of {low} ns have no role"
    );
}

#[test]
fn quota_and_throttling_equal_pod_cgroup_files() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    reader.scenario.start("cpu").expect("the load starts");
    // The quota is removed before the guest is ordered to stop: with so little CPU time
    // an emulated guest takes long to answer.
    let (before, snapshot, after) = reader.with_quota(&pod, 30_000, |reader| {
        eventually("the pod is throttled", || {
            (reader.cpu_stat(&pod).throttled > 5).then_some(())
        });
        (reader.cpu_stat(&pod), reader.read(), reader.cpu_stat(&pod))
    });
    reader.scenario.stop("cpu").expect("the load stops");
    let vm = pods::vm(&snapshot, &pod);
    let quota = vm
        .quota
        .iter()
        .find(|one| one.scope.name() == "pod")
        .expect("it has one");
    assert_eq!((quota.cores, quota.period_ns), (Some(0.3), 100_000_000));
    let within = |low: u64, value: u64, high: u64, what: &str| {
        assert!(
            (low..=high).contains(&value),
            "{what}: {value} is not in {low}..={high}"
        );
    };
    within(before.periods, quota.periods, after.periods, "periods");
    within(
        before.throttled,
        quota.throttled_periods,
        after.throttled,
        "throttled periods",
    );
    // The file has a resolution of 1 µs.
    let us = quota.throttled_ns / 1000;
    within(
        before.throttled_us,
        us,
        after.throttled_us,
        "throttled time",
    );
    assert!(
        quota.throttled_periods > 0,
        "a vCPU that spins on 0.3 cores is throttled"
    );
}

#[test]
fn thread_time_is_between_two_reads_of_schedstat() {
    let mut reader = Reader::new();
    let pod = reader.named().clone();
    reader.under_reader("cpu", |reader| {
        for _ in 0..5 {
            let stat = || {
                virtlens_tests::process::tids(pod.vmm_pid)
                    .into_iter()
                    .filter_map(|tid| Some((tid, Schedstat::read(pod.vmm_pid, tid)?)))
                    .collect::<std::collections::BTreeMap<_, _>>()
            };
            let low = stat();
            let snapshot = reader.read();
            let high = stat();
            for thread in &pods::vm(&snapshot, &pod).threads {
                let tid = i32::try_from(thread.tid).expect("tids are below 2^22");
                if let (Some(low), Some(high)) = (low.get(&tid), high.get(&tid)) {
                    let range = low.cpu_ns..=high.cpu_ns;
                    assert!(
                        range.contains(&thread.cpu_ns),
                        "{thread:?} is not in {range:?}"
                    );
                }
            }
        }
    });
}

//! Limits that cap a VM, or do not fit it.

use std::sync::Arc;

use super::{found, fresh, limit, limited, names, part, raises, throttle, use_cpu};
use crate::snapshot::{Check, Vm};
use crate::vocab::{PodSpec, Role};

#[test]
fn used_up_and_throttled_limit_raises_quota_capped() {
    let capped = |used: u64, throttled| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vcpu, used - 400);
            use_cpu(vm, Role::Vhost, 400);
            throttle(vm, throttled);
        }
    };
    let evidence = raises(
        Check::QuotaCapped,
        &limited(),
        capped(1820, 410),
        capped(1790, 410),
    );
    assert_eq!(
        evidence,
        "the pod used 1.82 of 2.00 cores (91 %): vcpu 1.42 and vhost 0.40; throttled for 4.1 s \
         of 10.0 s, in 41 of 100 periods"
    );
    // A common false alarm: often throttled, but far from the limit.
    assert_eq!(names(&found(&limited(), capped(900, 300))), [] as [&str; 0]);
    assert_eq!(
        names(&found(&limited(), capped(1820, 240))),
        [] as [&str; 0]
    );
}

/// Requested limit of the pod and overhead of its VM, millicores.
fn spec_with(limit: u64, overhead: u64) -> PodSpec {
    PodSpec {
        cpu_limit_millis: Some(limit),
        cpu_overhead_millis: Some(overhead),
        ..PodSpec::default()
    }
}

#[test]
fn evidence_of_limit_names_its_parts() {
    let evidence = |spec: Option<PodSpec>| {
        let mut vm = limited();
        vm.pod_spec = spec.map(Arc::new);
        let mut found = found(&vm, |vm| {
            use_cpu(vm, Role::Vcpu, 1950);
            throttle(vm, 400);
        });
        found.remove(0).evidence
    };
    let made_of = "; the limit is 1.75 of its containers and 0.25 of its runtime class";
    assert!(evidence(Some(spec_with(1750, 250))).ends_with(made_of));
    // Another limit than kubelet would set, or no overhead: nothing to explain.
    for spec in [Some(spec_with(1000, 250)), Some(spec_with(2000, 0)), None] {
        assert!(evidence(spec).ends_with("in 40 of 100 periods"));
    }
}

#[test]
fn default_vcpus_annotation_with_limit_raises_finding() {
    let with = |vcpus| {
        let mut vm = limited();
        vm.pod_spec = Some(Arc::new(PodSpec {
            default_vcpus: vcpus,
            ..PodSpec::default()
        }));
        found(&vm, |_| {})
    };
    let both = with(Some(2.0));
    assert_eq!(names(&both), ["default_vcpus_with_limit"]);
    assert_eq!(
        both[0].evidence,
        "the pod's annotation default_vcpus is 2, in addition to a limit of 2.00 cores"
    );
    for vcpus in [Some(1.0), None] {
        assert_eq!(names(&with(vcpus)), [] as [&str; 0]);
    }
}

#[test]
fn untracked_throttling_is_judged_by_periods() {
    let mut vm = limited();
    vm.limits[0].throttle = None;
    let found = found(&vm, |vm| {
        use_cpu(vm, Role::Vcpu, 1300);
        use_cpu(vm, Role::Vhost, 600);
        vm.limits[0].periods += 100;
        vm.limits[0].throttled_periods += 60;
        vm.limits[0].throttled_ns += part(450);
    });
    assert_eq!(names(&found), ["quota_capped"]);
    assert!(found[0].evidence.contains("for up to 4.5 s of 10.0 s"));
}

#[test]
fn io_threads_stalled_by_throttled_limit_raise_io_throttled() {
    let waits = |waited, throttled| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vhost, 100);
            use_cpu(vm, Role::Vcpu, 200);
            vm.roles[1].wait_ns = Some(part(waited));
            vm.roles[1].throttle_hits = Some(3);
            throttle(vm, throttled);
        }
    };
    let evidence = raises(
        Check::IoThrottled,
        &limited(),
        waits(200, 150),
        waits(200, 90),
    );
    assert_eq!(
        evidence,
        "vhost was runnable but did not run for 1.5 s of 10.0 s under a throttled limit (running \
         3 times when the quota ran out)"
    );
    assert_eq!(names(&found(&limited(), waits(90, 500))), [] as [&str; 0]);
    // Many threads that each waited briefly are not one thread that waited long.
    let mut many = limited();
    many.roles[1].threads = 8;
    assert_eq!(names(&found(&many, waits(400, 90))), [] as [&str; 0]);
    // The limit is throttled, but this role is outside it.
    let mut outside = limited();
    outside.limits[0].used_ns.remove(&Role::Vhost);
    assert_eq!(names(&found(&outside, waits(200, 150))), [] as [&str; 0]);
}

/// One vCPU wants a whole core: it is throttled only for the rest of each period, but in
/// every period.
#[test]
fn only_vcpu_at_its_limit_is_capped_whatever_the_limit() {
    for permille in [550_u32, 750, 800, 950] {
        let mut vm = fresh();
        vm.vcpus.truncate(1);
        (vm.roles[0].threads, vm.vcpu_count.online) = (1, Some(1));
        vm.vcpu_count.seen = 1;
        limit(&mut vm, f64::from(permille) / 1000.0);
        let permille = u64::from(permille);
        let uses = |used: u64, throttled: u64, periods: u64| {
            move |vm: &mut Vm| {
                use_cpu(vm, Role::Vcpu, used);
                throttle(vm, throttled);
                vm.limits[0].throttled_periods = periods;
            }
        };
        let left = 1000 - permille;
        for periods in [33, 99] {
            let found = found(&vm, uses(permille, left, periods));
            assert_eq!(names(&found), ["quota_capped"], "{permille}: {periods}");
        }
        // It wants slightly less than the limit: some periods end early.
        let less = permille * 97 / 100;
        assert_eq!(
            names(&found(&vm, uses(less, left / 5, 20))),
            [] as [&str; 0]
        );
        // Bursts: throttled in most of its few periods, far from the limit.
        let bursts = uses(permille / 5, left / 5, 80);
        assert_eq!(names(&found(&vm, bursts)), [] as [&str; 0]);
    }
}

#[test]
fn more_vcpus_than_limit_raises_vcpus_exceed_quota() {
    let of = |cores, throttled| {
        let mut vm = fresh();
        limit(&mut vm, cores);
        found(&vm, |vm| {
            use_cpu(vm, Role::Vcpu, 300);
            throttle(vm, throttled);
        })
    };
    let tight = of(1.25, 110);
    assert_eq!(names(&tight), ["vcpus_exceed_quota"]);
    assert_eq!(
        tight[0].evidence,
        "2 vCPUs under a limit of 1.25 cores: 1.6 vCPUs per core; throttled for 1.1 s of 10.0 s"
    );
    assert_eq!(names(&of(1.25, 90)), [] as [&str; 0], "hardly throttled");
    assert_eq!(
        names(&of(1.5, 110)),
        [] as [&str; 0],
        "the limit is large enough"
    );
}

#[test]
fn kata_vm_with_two_boot_vcpus_and_limit_raises_finding() {
    let mut vm = limited();
    vm.vcpu_count.online = Some(3);
    let with_boot = |boot, runtime| {
        let mut vm = vm.clone();
        vm.vcpu_count.boot = boot;
        vm.runtime = runtime;
        vm.limits[0].cores = Some(3.0);
        names(&found(&vm, |_| {}))
    };
    assert_eq!(
        with_boot(Some(2), Some("kata")),
        ["default_vcpus_with_limit"]
    );
    let none = [] as [&str; 0];
    assert_eq!(
        with_boot(Some(1), Some("kata")),
        none,
        "hot-plugged for the limit"
    );
    assert_eq!(with_boot(Some(3), Some("kata")), none, "sized at the start");
    assert_eq!(with_boot(Some(2), Some("kubevirt")), none);
    assert_eq!(with_boot(None, Some("kata")), none);
}

#[test]
fn busy_threads_outside_pod_raise_threads_outside_pod() {
    let outside = |permille| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Emulator, permille);
            use_cpu(vm, Role::Vcpu, 500);
            vm.roles[4].outside_pod = Some(3);
        }
    };
    let evidence = raises(
        Check::ThreadsOutsidePod,
        &limited(),
        outside(60),
        outside(40),
    );
    assert_eq!(
        evidence,
        "threads outside the pod's cgroup used 0.06 cores: 3 emulator threads with 0.06 cores"
    );
    raises(Check::ThreadsOutsidePod, &fresh(), outside(60), outside(40));
}

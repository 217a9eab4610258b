//! Each check on a VM that must raise it, and on a VM just below the threshold.

mod kata;
mod memory;
mod place;
mod quota;
mod threads;
mod watch;

use super::judge;
use crate::judge::findings::bounds::Bounds;
use crate::judge::interval::Interval;
use crate::snapshot::{Check, Finding, Quota, RoleUse, Severity, Vcpu, VcpuCount, Vm, Worker};
use crate::vocab::{
    DirtyLogging, Discards, Feature, Features, HaltPoll, KvmCounters, KvmValues, Role, Scope,
    Throttle,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WINDOW: u64 = 10 * SECOND;
const GIB: u64 = 1 << 30;

/// A part of the interval, in thousandths.
const fn part(permille: u64) -> u64 {
    WINDOW / 1000 * permille
}

/// A VM with two vCPUs and free page reporting, and without usage.
fn fresh() -> Vm {
    let role = |role, threads| RoleUse {
        role,
        threads,
        cpu_ns: 0,
        wait_ns: Some(0),
        outside_pod: Some(0),
        throttle_hits: Some(0),
    };
    let worker = |role| Worker {
        role,
        worker: 0,
        tid: Some(20),
        device: None,
        cpu_ns: 0,
    };
    let vcpu = |id| Vcpu {
        id,
        tid: Some(10 + id),
        wait_ns: Some(0),
        timeslices: Some(0),
        kvm: KvmCounters::from(KvmValues {
            halt_poll_ns: Some(HaltPoll::default()),
            ..KvmValues::default()
        }),
        ..Vcpu::default()
    };
    let mut vm = Vm {
        vm: "web".into(),
        vmm: "qemu",
        runtime: Some("kata"),
        pid: 7,
        running: true,
        roles: vec![
            role(Role::Vcpu, 2),
            role(Role::Vhost, 1),
            role(Role::Virtiofsd, 1),
            role(Role::Iothread, 1),
            role(Role::Emulator, 3),
        ],
        vcpus: vec![vcpu(0), vcpu(1)],
        vcpu_count: VcpuCount {
            boot: Some(1),
            online: Some(2),
            parked: Some(0),
            seen: 2,
        },
        workers: vec![
            worker(Role::Vhost),
            worker(Role::Virtiofsd),
            worker(Role::Iothread),
        ],
        ..Vm::default()
    };
    vm.memory.guest_bytes = Some(2 * GIB);
    vm.memory.resident_bytes = Some(2 * GIB);
    vm.memory.resident_huge_bytes = Some(0);
    vm.memory.refault_bytes = Some(0);
    vm.memory.discards = Some(Discards::default());
    vm.memory.dirty_logging = Some(DirtyLogging::default());
    vm.memory.features = Features {
        balloon: feature(true),
        free_page_reporting: feature(true),
    };
    vm
}

fn feature(enabled: bool) -> Feature {
    Feature {
        enabled: Some(enabled),
        reason: "the VMM's arguments",
    }
}

/// Sets the limit of its pod, without usage.
fn limit(vm: &mut Vm, cores: f64) {
    vm.limits = vec![Quota {
        scope: Scope::Pod,
        cgroup: "/pod".into(),
        cores: Some(cores),
        period_ns: 100 * MS,
        periods: 0,
        throttled_periods: 0,
        throttled_ns: 0,
        used_ns: [(Role::Vcpu, 0), (Role::Vhost, 0)].into(),
        throttle: Some(Throttle::default()),
    }];
    vm.limit_cores = Some(cores);
    vm.vcpu_limit_cores = Some(cores);
    for vcpu in &mut vm.vcpus {
        vcpu.cgroup = Some("/pod".into());
    }
}

/// Adds usage of a role and of each of its workers, in thousandths of the interval.
fn use_cpu(vm: &mut Vm, role: Role, permille: u64) {
    for one in vm.roles.iter_mut().filter(|one| one.role == role) {
        one.cpu_ns += part(permille);
    }
    for worker in vm.workers.iter_mut().filter(|worker| worker.role == role) {
        worker.cpu_ns += part(permille);
    }
    for limit in &mut vm.limits {
        limit
            .used_ns
            .entry(role)
            .and_modify(|ns| *ns += part(permille));
    }
    if role == Role::Vcpu {
        let vcpus = vm.vcpus.len() as u64;
        for vcpu in &mut vm.vcpus {
            vcpu.cpu_ns += part(permille) / vcpus;
        }
    }
}

/// Throttles its limit for a part of the interval, in thousandths.
fn throttle(vm: &mut Vm, permille: u64) {
    let limit = &mut vm.limits[0];
    limit.periods += 100;
    limit.throttled_periods += permille / 10;
    let throttle = limit.throttle.as_mut().expect("it is tracked");
    throttle.wall_ns += part(permille);
}

/// Findings about a VM that changes to `now` in ten seconds.
fn found(before: &Vm, change: impl FnOnce(&mut Vm)) -> Vec<Finding> {
    let mut before = before.clone();
    before.quota.clone_from(&before.limits);
    let before = &before;
    let mut now = before.clone();
    change(&mut now);
    now.quota.clone_from(&now.limits);
    let over = Interval::between(before, &now, WINDOW);
    judge(&over, &Bounds::default(), "v2")
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|one| one.check.name()).collect()
}

/// Asserts that `too_much` raises exactly `check`, and that `just_enough` raises nothing.
fn raises(
    check: Check,
    before: &Vm,
    too_much: impl FnOnce(&mut Vm),
    just_enough: impl FnOnce(&mut Vm),
) -> String {
    let mut raised = found(before, too_much);
    assert_eq!(names(&raised), [check.name()], "{raised:?}");
    let healthy = found(before, just_enough);
    assert_eq!(names(&healthy), [] as [&str; 0], "{healthy:?}");
    raised.remove(0).evidence
}

/// A VM whose limit fits its vCPUs.
fn limited() -> Vm {
    let mut vm = fresh();
    limit(&mut vm, 2.0);
    vm
}

#[test]
fn warnings_come_first_then_highest_excess() {
    let found = found(&fresh(), |vm| {
        use_cpu(vm, Role::Vhost, 900);
        use_cpu(vm, Role::Iothread, 990);
        vm.vcpus[0].wait_ns = Some(part(400));
    });
    assert_eq!(
        names(&found),
        [
            "vcpu_starved",
            "iothread_saturated",
            "vhost_saturated",
            "overhead_high"
        ]
    );
    assert_eq!(found[3].severity, Severity::Info);
}

#[test]
fn configured_threshold_is_used() {
    let bounds = Bounds {
        vhost_busy: 0.5,
        ..Bounds::default()
    };
    let mut now = fresh();
    use_cpu(&mut now, Role::Vhost, 510);
    use_cpu(&mut now, Role::Vcpu, 1000);
    let before = fresh();
    let found = judge(&Interval::between(&before, &now, WINDOW), &bounds, "v2");
    assert_eq!(names(&found), ["vhost_saturated"]);
}

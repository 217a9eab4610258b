use super::{Interval, is_same};
use crate::snapshot::{Quota, RoleUse, Vcpu, Vm};
use crate::vocab::{
    DiscardSum, Discards, ExitCounts, HaltPoll, KvmCounters, KvmValues, Role, Scope,
};

const SECOND: u64 = 1_000_000_000;

fn role(cpu_ns: u64, wait_ns: Option<u64>) -> RoleUse {
    RoleUse {
        role: Role::Vcpu,
        threads: 1,
        cpu_ns,
        wait_ns,
        outside_pod: None,
        throttle_hits: None,
    }
}

fn vcpu(id: u32, ns: u64) -> Vcpu {
    Vcpu {
        id,
        tid: Some(id + 1),
        cpu_ns: ns,
        kvm: KvmCounters::from(KvmValues {
            halt_poll_ns: Some(HaltPoll {
                success: ns / 10,
                fail: ns / 5,
            }),
            exits: Some(ExitCounts([ns; 7])),
            ..KvmValues::default()
        }),
        ..Vcpu::default()
    }
}

fn vm(roles: Vec<RoleUse>, vcpus: Vec<Vcpu>) -> Vm {
    Vm {
        vm: "one".into(),
        pid: 1,
        roles,
        vcpus,
        ..Vm::default()
    }
}

#[test]
fn time_added_in_an_interval_is_reported_in_cores() {
    let before = vm(vec![role(3 * SECOND, Some(5))], vec![vcpu(0, 1000)]);
    let mut now = vm(
        vec![role(4 * SECOND, Some(9))],
        vec![vcpu(0, 1600), vcpu(1, 70)],
    );
    now.unattributed_cpu_ns = SECOND;
    let over = Interval::between(&before, &now, 2 * SECOND);
    let used = over.role(Role::Vcpu).expect("it is there");
    assert_eq!((used.cpu_ns, used.wait_ns), (SECOND, Some(4)));
    assert!((over.cores(used.cpu_ns) - 0.5).abs() < 1e-9);
    assert!((over.per_second(30) - 15.0).abs() < 1e-9);
    assert_eq!(over.cpu_ns(), 2 * SECOND);
    assert_eq!(over.role(Role::Vhost), None);
    let vcpus: Vec<_> = over.vcpus().collect();
    assert_eq!((vcpus[0].id, vcpus[0].cpu_ns), (0, 600));
    assert_eq!(vcpus[0].kvm.exits(), Some(ExitCounts([600; 7])));
    let poll = HaltPoll {
        success: 60,
        fail: 120,
    };
    assert_eq!(vcpus[0].kvm.halt_poll_ns(), Some(poll));
    assert_eq!(vcpus.len(), 1, "one was plugged in meanwhile");
}

#[test]
fn unknown_value_has_no_difference() {
    let unknown = Vcpu {
        id: 0,
        tid: Some(1),
        ..Vcpu::default()
    };
    let before = vm(vec![role(0, None)], vec![unknown]);
    let now = vm(vec![role(9, Some(7))], vec![vcpu(0, 1000)]);
    let over = Interval::between(&before, &now, SECOND);
    assert_eq!(over.role(Role::Vcpu).and_then(|role| role.wait_ns), None);
    assert_eq!(over.wait_ns(), None);
    let vcpu = over.vcpus().next().expect("it is there");
    assert_eq!((vcpu.kvm.halt_poll_ns(), vcpu.kvm.exits()), (None, None));
    let ever = Interval::since_began(&now);
    assert_eq!(ever.wait_ns(), Some(7));
}

#[test]
fn vcpu_without_thread_used_nothing() {
    let mut now = vm(Vec::new(), vec![vcpu(0, 10)]);
    now.vcpus[0].tid = None;
    assert_eq!(Interval::since_began(&now).vcpus().count(), 0);
}

#[test]
fn limits_are_compared_by_their_cgroup() {
    let quota = |cgroup: &str, cores, periods, used| Quota {
        scope: Scope::Container,
        cgroup: cgroup.into(),
        cores,
        period_ns: 1,
        periods,
        throttled_periods: periods / 2,
        throttled_ns: 0,
        used_ns: [(Role::Vhost, used)].into(),
        throttle: None,
    };
    let levels = |limits: &[Quota]| {
        let mut vm = vm(Vec::new(), Vec::new());
        vm.quota = limits.to_vec();
        vm.limits = limits.to_vec();
        vm
    };
    let before = levels(&[
        quota("/a", Some(2.0), 10, 5),
        quota("/set", None, 10, 5),
        quota("/changed", Some(4.0), 10, 5),
    ]);
    let mut now = levels(&[
        quota("/a", Some(2.0), 16, 9),
        quota("/set", Some(1.0), 99, 99),
        quota("/changed", Some(1.0), 99, 99),
        quota("/moved-here", Some(1.0), 99, 99),
        quota("/no-limit", None, 4, 3),
    ]);
    // The counters of a scope continue from those of another level.
    now.limits[0].periods = 1000;
    let over = Interval::between(&before, &now, SECOND);
    let limits: Vec<_> = over.limits().collect();
    assert_eq!(limits.len(), 1, "the others are unknown");
    assert_eq!((limits[0].periods, limits[0].throttled_periods), (6, 3));
    assert_eq!(limits[0].of(Role::Vhost), Some(4));
    assert_eq!(limits[0].of(Role::Vcpu), None);
    assert_eq!(&*over.binding().expect("one").now.cgroup, "/a");
    assert_eq!(Interval::since_began(&now).limits().count(), 4);
}

#[test]
fn memory_is_told_by_kind() {
    let with = |bytes, refault_bytes| {
        let mut vm = vm(Vec::new(), Vec::new());
        vm.memory.refault_bytes = Some(refault_bytes);
        let discards = Discards {
            report: DiscardSum {
                events: bytes,
                bytes,
                ns: bytes,
            },
            ..Discards::default()
        };
        vm.memory.discards = Some(discards);
        vm
    };
    let (before, now) = (with(10, 3), with(14, 8));
    let used = Interval::between(&before, &now, SECOND).memory();
    let report = used.discards.expect("they are followed").report;
    assert_eq!((report.events, report.bytes, report.ns), (4, 4, 4));
    assert_eq!(used.refault_bytes, Some(5));
    assert_eq!(used.faults, None);
}

#[test]
fn another_process_is_another_vm() {
    let one = vm(Vec::new(), Vec::new());
    assert!(is_same(&one, &one.clone()));
    assert!(!is_same(
        &one,
        &Vm {
            pid: 2,
            ..one.clone()
        }
    ));
    assert!(!is_same(
        &one,
        &Vm {
            vm: "two".into(),
            ..one.clone()
        }
    ));
}

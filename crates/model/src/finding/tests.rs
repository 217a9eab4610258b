//! Each check on a VM that must raise it, and on one that is just short of it.

use std::sync::Arc;

use super::{Bounds, Check, Finding, Severity, Watch, judge};
use crate::cpuset::CpuSet;
use crate::facts::Comm;
use crate::features::{Feature, Features};
use crate::interval::Interval;
use crate::memory::{DiscardSum, Discards};
use crate::placement::{Mismatch, MismatchKind};
use crate::snapshot::{
    API_VERSION, HaltPoll, Misplaced, Node, Quota, Role, RoleUse, Scope, Snapshot, Thread,
    Topology, Vcpu, VcpuCount, Vm, Worker,
};
use crate::throttle::Throttle;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WINDOW: u64 = 10 * SECOND;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What of the time, in thousandths.
const fn part(permille: u64) -> u64 {
    WINDOW / 1000 * permille
}

/// A VM of two vCPUs that has done nothing yet, with free page reporting.
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
        cpu_ns: 0,
    };
    let vcpu = |id| Vcpu {
        id,
        tid: Some(10 + id),
        wait_ns: Some(0),
        halt_poll_ns: Some(HaltPoll::default()),
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

/// Its pod's limit: nothing used of it yet.
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
}

/// A role, and each of its workers, uses so much of the time, in thousandths.
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

/// Its limit was throttled for so much of the time, in thousandths.
fn throttle(vm: &mut Vm, permille: u64) {
    let limit = &mut vm.limits[0];
    limit.periods += 100;
    limit.throttled_periods += permille / 10;
    let throttle = limit.throttle.as_mut().expect("it is followed");
    throttle.wall_ns += part(permille);
}

/// What is found of a VM that becomes `now` in ten seconds.
fn found(before: &Vm, change: impl FnOnce(&mut Vm)) -> Vec<Finding> {
    let mut before = before.clone();
    before.quota.clone_from(&before.limits);
    let before = &before;
    let mut now = before.clone();
    change(&mut now);
    now.quota.clone_from(&now.limits);
    judge(&Interval::between(before, &now, WINDOW), &Bounds::default())
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|one| one.check.name()).collect()
}

/// Asserts that `check` alone is raised by what `too_much` does, and nothing by
/// `just_enough`.
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

/// A VM with a limit that fits its vCPUs.
fn limited() -> Vm {
    let mut vm = fresh();
    limit(&mut vm, 2.0);
    vm
}

#[test]
fn a_limit_that_is_used_up_and_throttled_caps() {
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
    // The classic false alarm: throttled often, far from the limit.
    assert_eq!(names(&found(&limited(), capped(900, 300))), [] as [&str; 0]);
    assert_eq!(
        names(&found(&limited(), capped(1820, 240))),
        [] as [&str; 0]
    );
}

#[test]
fn where_throttling_is_not_followed_its_periods_tell() {
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
fn io_threads_that_stand_under_a_throttled_limit() {
    let stands = |waited, throttled| {
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
        stands(200, 150),
        stands(200, 90),
    );
    assert_eq!(
        evidence,
        "vhost stood ready to run for 1.5 s in 10.0 s under a throttled limit, and ran 3 times \
         when the limit was used up"
    );
    assert_eq!(names(&found(&limited(), stands(90, 500))), [] as [&str; 0]);
    // Many threads that each stood for a little are not one that stood for long.
    let mut many = limited();
    many.roles[1].threads = 8;
    assert_eq!(names(&found(&many, stands(400, 90))), [] as [&str; 0]);
    // Throttled, but not this role.
    let mut outside = limited();
    outside.limits[0].used_ns.remove(&Role::Vhost);
    assert_eq!(names(&found(&outside, stands(200, 150))), [] as [&str; 0]);
}

#[test]
fn each_kind_of_worker_has_an_end() {
    for (check, role) in [
        (Check::VhostSaturated, Role::Vhost),
        (Check::VirtiofsdSaturated, Role::Virtiofsd),
        (Check::IothreadSaturated, Role::Iothread),
    ] {
        // The vCPUs have more to do than that.
        let of = |permille| {
            move |vm: &mut Vm| {
                use_cpu(vm, role, permille);
                use_cpu(vm, Role::Vcpu, 1500);
            }
        };
        let evidence = raises(check, &fresh(), of(860), of(840));
        let name = role.name();
        assert_eq!(
            evidence,
            format!("{name} worker 0 (thread 20) used 0.86 of 1 core")
        );
    }
}

#[test]
fn two_workers_at_half_are_not_one_at_its_end() {
    let mut vm = fresh();
    let other = Worker {
        worker: 1,
        ..vm.workers[0]
    };
    vm.workers.push(other);
    let found = found(&vm, |vm| {
        use_cpu(vm, Role::Vhost, 600);
        use_cpu(vm, Role::Vcpu, 1500);
    });
    assert_eq!(names(&found), [] as [&str; 0]);
}

#[test]
fn vcpus_that_are_all_busy() {
    let of = |permille| move |vm: &mut Vm| use_cpu(vm, Role::Vcpu, permille);
    let evidence = raises(Check::VcpusSaturated, &fresh(), of(1940), of(1880));
    assert_eq!(evidence, "its 2 vCPUs ran for 97 % of the time on average");
}

#[test]
fn a_vcpu_that_waits() {
    let waits = |permille| move |vm: &mut Vm| vm.vcpus[1].wait_ns = Some(part(permille));
    let evidence = raises(Check::VcpuStarved, &fresh(), waits(110), waits(90));
    assert_eq!(evidence, "vCPU 1 waited for a CPU for 1.1 s of 10.0 s");
    // A thread that is first seen to run a vCPU has a life behind it.
    let new = found(&fresh(), |vm| {
        waits(900)(vm);
        vm.vcpus[1].tid = Some(99);
    });
    assert_eq!(names(&new), [] as [&str; 0]);
    // What is throttled is not starved.
    let throttled = found(&limited(), |vm| {
        waits(300)(vm);
        throttle(vm, 240);
    });
    assert_eq!(names(&throttled), [] as [&str; 0]);
}

#[test]
fn vcpus_that_poll() {
    let polls = |permille: u64| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vcpu, 1000);
            vm.vcpus[0].halt_poll_ns = Some(HaltPoll {
                success: part(permille / 4),
                fail: part(permille - permille / 4),
            });
        }
    };
    let evidence = raises(Check::HaltPollSpin, &fresh(), polls(240), polls(190));
    assert_eq!(
        evidence,
        "vCPUs polled with 0.24 of their 1.00 cores (24 %), 75 % of it in vain"
    );
    // Most of next to nothing.
    let little = found(&fresh(), |vm| {
        use_cpu(vm, Role::Vcpu, 100);
        vm.vcpus[0].halt_poll_ns = Some(HaltPoll {
            success: 0,
            fail: part(90),
        });
    });
    assert_eq!(names(&little), [] as [&str; 0]);
}

#[test]
fn polling_is_no_work() {
    let found = found(&fresh(), |vm| {
        use_cpu(vm, Role::Vcpu, 2000);
        for vcpu in &mut vm.vcpus {
            vcpu.halt_poll_ns = Some(HaltPoll {
                success: part(500),
                fail: 0,
            });
        }
    });
    assert_eq!(names(&found), ["halt_poll_spin"]);
}

#[test]
fn a_vm_whose_host_works_more_than_it() {
    let of = |emulator| {
        move |vm: &mut Vm| {
            use_cpu(vm, Role::Vcpu, 300);
            use_cpu(vm, Role::Emulator, emulator);
        }
    };
    let evidence = raises(Check::OverheadHigh, &fresh(), of(310), of(290));
    assert_eq!(
        evidence,
        "0.31 of 0.61 cores (51 %) beside the vCPUs: emulator 0.31"
    );
}

#[test]
fn more_vcpus_than_the_limit_runs() {
    let mut tight = fresh();
    limit(&mut tight, 1.25);
    let mut wide = fresh();
    limit(&mut wide, 1.5);
    let found = |vm| found(vm, |vm| throttle(vm, 10));
    assert_eq!(
        names(&judge(
            &Interval::between(&tight, &tight, WINDOW),
            &Bounds::default()
        )),
        [] as [&str; 0],
        "it is at rest"
    );
    let tight = found(&tight);
    assert_eq!(names(&tight), ["vcpus_exceed_quota"]);
    assert_eq!(
        tight[0].evidence,
        "2 vCPUs under a limit of 1.25 cores: 1.6 vCPUs a core"
    );
    assert_eq!(names(&found(&wide)), [] as [&str; 0]);
}

#[test]
fn two_ways_to_size_a_vm() {
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
fn every_misplacement_is_a_finding() {
    for kind in MismatchKind::ALL {
        let misplaced = |count| {
            move |vm: &mut Vm| {
                let one = Misplaced {
                    mismatch: Mismatch {
                        kind,
                        vcpus: vec![0, 1],
                        pcpus: CpuSet::default(),
                        evidence: "0 and 1 are apart".to_owned(),
                        remedy: "bring them together",
                    },
                    since: String::new(),
                };
                vm.topology = Some(Arc::new(Topology {
                    mismatches: vec![one; count],
                    ..Topology::default()
                }));
            }
        };
        let evidence = raises(Check::Place(kind), &fresh(), misplaced(4), misplaced(0));
        assert!(
            evidence.ends_with("0 and 1 are apart; and 1 more"),
            "{evidence}"
        );
        let found = found(&fresh(), misplaced(1));
        assert_eq!(found[0].remedy, "bring them together");
    }
}

#[test]
fn threads_that_work_outside_of_the_pod() {
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
        "outside of the pod's cgroup: 3 emulator threads with 0.06 cores"
    );
    raises(Check::ThreadsOutsidePod, &fresh(), outside(60), outside(40));
}

#[test]
fn memory_that_goes_back_and_forth() {
    let churns = |mib| {
        move |vm: &mut Vm| {
            vm.memory.refault_bytes = Some(mib * MIB);
            let discards = vm.memory.discards.as_mut().expect("they are followed");
            discards.report = DiscardSum {
                events: 16,
                bytes: (mib + 10) * MIB,
                ns: 20 * MS,
            };
        }
    };
    let evidence = raises(Check::ReportingChurn, &fresh(), churns(420), churns(400));
    assert_eq!(
        evidence,
        "430 MiB reported as free and 420 MiB taken again in 10.0 s, of 2.0 GiB RAM; the VMM \
         spent 20 ms on giving it back (48 ms a GiB)"
    );
}

#[test]
fn an_idle_vm_that_keeps_its_memory() {
    let mut idle = fresh();
    idle.memory.features.free_page_reporting = feature(false);
    let holds = |mib, permille| {
        move |vm: &mut Vm| {
            vm.memory.resident_bytes = Some(mib * MIB);
            use_cpu(vm, Role::Vcpu, permille);
        }
    };
    let evidence = raises(Check::MemoryKept, &idle, holds(1800, 90), holds(1600, 90));
    assert_eq!(
        evidence,
        "the host holds 1.8 GiB for 2.0 GiB of RAM (88 %) while its vCPUs run 4 % of the time; \
         no reporting: the VMM's arguments"
    );
    let none = [] as [&str; 0];
    assert_eq!(
        names(&found(&idle, holds(1800, 120))),
        none,
        "it is at work"
    );
    assert_eq!(names(&found(&fresh(), holds(1800, 0))), none, "it reports");
    let huge = found(&idle, |vm| {
        holds(1800, 0)(vm);
        vm.memory.resident_huge_bytes = Some(1800 * MIB);
    });
    assert_eq!(names(&huge), none, "somebody set it aside");
    let mut unknown = idle.clone();
    unknown.memory.discards = None;
    assert_eq!(
        names(&found(&unknown, holds(1800, 0))),
        none,
        "it may have a balloon"
    );
}

#[test]
fn a_pool_of_io_threads() {
    let pool = |threads: usize| {
        move |vm: &mut Vm| {
            let worker = Thread {
                tid: 30,
                role: Some(Role::Emulator),
                name: Comm::new("worker"),
                cpu_ns: 0,
                wait_ns: None,
                pcpu: None,
                affinity: None,
            };
            vm.threads = vec![worker; threads];
        }
    };
    let evidence = raises(Check::ThreadPoolIo, &fresh(), pool(8), pool(7));
    assert_eq!(evidence, "8 threads named worker");
}

#[test]
fn warnings_come_first_and_then_the_furthest() {
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
fn thresholds_are_as_they_are_set() {
    let bounds = Bounds {
        vhost_busy: 0.5,
        ..Bounds::default()
    };
    let mut now = fresh();
    use_cpu(&mut now, Role::Vhost, 510);
    use_cpu(&mut now, Role::Vcpu, 1000);
    let before = fresh();
    let found = judge(&Interval::between(&before, &now, WINDOW), &bounds);
    assert_eq!(names(&found), ["vhost_saturated"]);
}

fn reading(clock_ns: u64, vms: Vec<Vm>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        api_version: API_VERSION,
        kind: "Snapshot",
        time: String::new(),
        clock_ns,
        node: Node {
            name: String::new(),
            kernel: String::new(),
            cpus: 1,
            cgroup: "v2",
        },
        sources: Vec::new(),
        dropped: Vec::new(),
        maps: Vec::new(),
        programs: Vec::new(),
        vms,
    })
}

#[test]
fn a_watch_judges_from_one_reading_to_the_next() {
    let mut watch = Watch::new(Bounds::default());
    let shown = |watch: &Watch, vm: &Vm| {
        let mut vms = [vm.clone()];
        watch.show(&mut vms);
        let [vm] = vms;
        vm.findings.map(|found| names(&found))
    };
    let mut vm = fresh();
    watch.judge(&[vm.clone()], 0);
    assert_eq!(shown(&watch, &vm), None, "there is nothing to compare with");
    watch.begin(&reading(0, vec![vm.clone()]));

    use_cpu(&mut vm, Role::Vhost, 900);
    use_cpu(&mut vm, Role::Vcpu, 1000);
    watch.judge(&[vm.clone()], WINDOW);
    assert_eq!(shown(&watch, &vm), Some(vec!["vhost_saturated"]));
    watch.begin(&reading(WINDOW, vec![vm.clone()]));
    watch.judge(&[vm.clone()], 2 * WINDOW);
    assert_eq!(shown(&watch, &vm), Some(vec![]), "it has come to rest");

    // Started again in place: its counters are another process's.
    let again = Vm {
        pid: 8,
        ..vm.clone()
    };
    watch.judge(std::slice::from_ref(&again), 3 * WINDOW);
    assert_eq!(shown(&watch, &again), None);
    let gone = Vm {
        running: false,
        ..vm
    };
    watch.judge(std::slice::from_ref(&gone), 3 * WINDOW);
    assert_eq!(shown(&watch, &gone), None);
}

//! Limits on cgroups that each hold a part of a VM's threads, as libvirt creates them.

use super::{in_first_bucket, read, thread, vcpu, vm};
use crate::facts::{Bandwidth, CgroupFact, Facts, ThreadFact, ThreadKind, ThrottlingFacts};
use crate::fleet::registry::Fleet;
use crate::judge::interval::Interval;
use crate::snapshot::{Quota, Vm};
use crate::vocab::{CgroupId, Durations, Owner, Role, Scope, Throttle};

const SCOPE: &str = r"/machine.slice/machine-qemu\x2d1\x2ddb.scope";
const GLOBAL: u64 = 4;
const VCPU0: u64 = 5;
const VCPU1: u64 = 6;
const EMULATOR: u64 = 7;
const IOTHREAD: u64 = 8;

/// A cgroup with a limit in hundredths of a core and its numbers of periods and throttled
/// periods.
fn cgroup(id: u64, parent: u64, path: &str, percent: u64, periods: [u64; 2]) -> CgroupFact {
    let [periods, throttled_periods] = periods;
    CgroupFact {
        id: CgroupId(id),
        parent: (parent > 0).then_some(CgroupId(parent)),
        path: path.into(),
        bandwidth: (parent > 0).then_some(Bandwidth {
            quota_ns: (percent > 0).then_some(percent * 1_000_000),
            period_ns: 100_000_000,
            burst_ns: None,
            periods,
            throttled_periods,
            throttled_ns: throttled_periods * 50_000_000,
        }),
        memory: None,
    }
}

/// Facts of a host with one libvirt VM; `periods` of global, vcpu0, vcpu1, emulator.
fn host(periods: [[u64; 2]; 4], cpu_ns: u64) -> Facts {
    let [global, vcpu0, vcpu1, emulator] = periods;
    let below = |id, rest: &str, percent, periods| {
        cgroup(
            id,
            GLOBAL,
            &format!("{SCOPE}/libvirt/{rest}"),
            percent,
            periods,
        )
    };
    let own = Owner::Vm(vm(100));
    let at = |cgroup, thread| ThreadFact {
        cgroup: CgroupId(cgroup),
        ..thread
    };
    let vhost = ThreadFact {
        kind: ThreadKind::UserWorker,
        ..thread(own, 103, "vhost-100", cpu_ns)
    };
    Facts {
        threads: vec![
            at(EMULATOR, thread(own, 100, "qemu-system-x86", cpu_ns)),
            at(VCPU0, vcpu(vm(100), 101, 0, cpu_ns)),
            at(VCPU1, vcpu(vm(100), 102, 1, cpu_ns)),
            at(EMULATOR, vhost),
            at(IOTHREAD, thread(own, 104, "IO iothread1", cpu_ns)),
        ]
        .into(),
        cgroups: vec![
            cgroup(1, 0, "/", 0, [0; 2]),
            cgroup(2, 1, "/machine.slice", 0, [0; 2]),
            cgroup(3, 2, SCOPE, 0, [0; 2]),
            cgroup(GLOBAL, 3, &format!("{SCOPE}/libvirt"), 80, global),
            below(VCPU0, "vcpu0", 30, vcpu0),
            below(VCPU1, "vcpu1", 30, vcpu1),
            below(EMULATOR, "emulator", 10, emulator),
            below(IOTHREAD, "iothread1", 0, [0; 2]),
        ],
        ..Facts::default()
    }
}

fn last(fleet: &mut Fleet, facts: &Facts, now_ns: u64) -> Vm {
    let (mut vms, _) = read(fleet, facts, "db", now_ns);
    vms.pop().expect("there is one VM")
}

fn level(levels: &[Quota], path: &str) -> Quota {
    let mut levels = levels.iter();
    let level = levels.find(|level| level.cgroup.ends_with(path));
    level.expect("it is a level").clone()
}

#[test]
fn every_limited_cgroup_is_shown_with_its_threads() {
    let vm = last(&mut Fleet::new(0), &host([[9; 2]; 4], 100), 0);
    let shown = vm.quota.iter().map(|level| (level.scope, level.cores));
    let shown: Vec<_> = shown.collect();
    assert_eq!(
        shown,
        [
            (Scope::Machine, None),
            (Scope::Machine, Some(0.8)),
            (Scope::Vcpu, Some(0.3)),
            (Scope::Vcpu, Some(0.3)),
            (Scope::Emulator, Some(0.1)),
        ]
    );
    let used = |path, role: Role| level(&vm.quota, path).used_ns.get(&role).copied();
    assert_eq!(used("/vcpu1", Role::Vcpu), Some(100));
    assert_eq!(used("/vcpu1", Role::Emulator), None);
    assert_eq!(used("/emulator", Role::Vhost), Some(100));
    assert_eq!(used("/libvirt", Role::Vcpu), Some(200));
    assert_eq!(used("/libvirt", Role::Iothread), Some(100));
    assert_eq!(
        (vm.limit_cores, vm.vcpu_limit_cores),
        (Some(0.8), Some(0.6)),
        "the iothread has no limit but the one above all"
    );
    assert!(
        vm.vcpus[1]
            .cgroup
            .as_deref()
            .is_some_and(|path| path.ends_with("/vcpu1"))
    );
}

#[test]
fn binding_limit_is_shown_instead_of_lowest() {
    let mut fleet = Fleet::new(0);
    let before = last(
        &mut fleet,
        &host([[100, 50], [100, 90], [100, 0], [100, 0]], 0),
        0,
    );
    let quiet = level(&before.limits, "/vcpu0");
    assert_eq!(quiet.throttled_periods, 90, "of the first level all counts");
    let now = host([[239, 189], [238, 92], [200, 0], [200, 0]], 1);
    let now = last(&mut fleet, &now, 1);
    let over = Interval::between(&before, &now, 14_000_000_000);
    let binding = over.binding().expect("there are limits");
    assert_eq!(&*binding.now.cgroup, format!("{SCOPE}/libvirt"));
    assert_eq!((binding.periods, binding.throttled_periods), (139, 139));
}

#[test]
fn scope_changes_to_newly_binding_level_without_jump() {
    let mut fleet = Fleet::new(0);
    let shown = |fleet: &mut Fleet, vcpu0: [u64; 2], vcpu1: [u64; 2], at: u64| {
        let vm = last(fleet, &host([[0; 2], vcpu0, vcpu1, [0; 2]], at), at);
        let mut limits = vm.limits.into_iter();
        let shown = limits.find(|limit| limit.scope == Scope::Vcpu);
        let shown = shown.expect("its vCPUs have limits");
        let name = shown.cgroup.rsplit('/').next().map(str::to_owned);
        (
            name.unwrap_or_default(),
            shown.periods,
            shown.throttled_periods,
        )
    };
    let vcpu = |name: &str, periods, throttled| (name.to_owned(), periods, throttled);
    assert_eq!(
        shown(&mut fleet, [100, 40], [500, 7], 0),
        vcpu("vcpu0", 100, 40)
    );
    assert_eq!(
        shown(&mut fleet, [110, 40], [510, 16], 1),
        vcpu("vcpu1", 110, 49)
    );
    assert_eq!(
        shown(&mut fleet, [120, 40], [520, 16], 2),
        vcpu("vcpu1", 120, 49)
    );
    assert_eq!(
        shown(&mut fleet, [130, 50], [530, 16], 3),
        vcpu("vcpu0", 130, 59)
    );
}

#[test]
fn throttled_vcpu_is_distinguished_from_unthrottled_one() {
    let mut fleet = Fleet::new(0);
    let before = last(&mut fleet, &host([[0; 2], [0; 2], [0; 2], [0; 2]], 0), 0);
    let now = last(
        &mut fleet,
        &host([[0; 2], [0; 2], [258, 240], [0; 2]], 1),
        1,
    );
    let over = Interval::between(&before, &now, 26_000_000_000);
    assert_eq!(over.vcpu_throttled_ns(0), 0);
    assert_eq!(over.vcpu_throttled_ns(1), 240 * 50_000_000);
}

/// A VM whose throttled cgroup is removed while its other cgroup remains.
#[test]
fn throttle_durations_do_not_fall_when_a_level_goes() {
    let throttled = |of: u64| Throttle {
        throttles: of,
        wall_ns: of,
        unthrottles: Durations {
            counts: in_first_bucket(of),
            sum_ns: of,
        },
    };
    let with = |levels: &[(u64, u64)]| Facts {
        throttling: Some(ThrottlingFacts {
            cgroups: levels
                .iter()
                .map(|(id, of)| (CgroupId(*id), throttled(*of)))
                .collect(),
            hits: Vec::new(),
        }),
        ..host([[9; 2]; 4], 1)
    };
    let count = |vm: &Vm| vm.throttle_durations.map(|all| all.count());
    let mut fleet = Fleet::new(0);
    let both = last(&mut fleet, &with(&[(VCPU0, 5), (VCPU1, 2)]), 0);
    assert_eq!(count(&both), Some(7));
    let mut unplugged = with(&[(VCPU0, 6)]);
    unplugged
        .threads
        .change(|threads| threads.retain(|thread| thread.cgroup != CgroupId(VCPU1)));
    unplugged.cgroups.retain(|fact| fact.id != CgroupId(VCPU1));
    let one = last(&mut fleet, &unplugged, 1);
    assert_eq!(one.quota.len(), 4, "the level is gone");
    assert_eq!(count(&one), Some(8));
    let mut again = with(&[(VCPU0, 6), (60, 1)]);
    for fact in &mut again.cgroups {
        if fact.id == CgroupId(VCPU1) {
            fact.id = CgroupId(60);
        }
    }
    again.threads.change(|threads| {
        let of_vcpu1 = threads.iter_mut();
        let of_vcpu1 = of_vcpu1.filter(|thread| thread.cgroup == CgroupId(VCPU1));
        of_vcpu1.for_each(|thread| thread.cgroup = CgroupId(60));
    });
    assert_eq!(count(&last(&mut fleet, &again, 2)), Some(9));
}

/// The next agent cannot read the counters of a removed cgroup.
#[test]
fn throttle_durations_outlive_the_agent_and_the_level() {
    let throttled = Throttle {
        throttles: 5,
        wall_ns: 5,
        unthrottles: Durations {
            counts: in_first_bucket(5),
            sum_ns: 5,
        },
    };
    let with = |levels: &[u64]| {
        let facts = levels.iter().map(|id| (CgroupId(*id), throttled)).collect();
        Facts {
            throttling: Some(ThrottlingFacts {
                cgroups: facts,
                hits: Vec::new(),
            }),
            ..host([[9; 2]; 4], 1)
        }
    };
    let mut first = Fleet::new(0);
    last(&mut first, &with(&[VCPU0, VCPU1]), 0);
    let mut unplugged = with(&[VCPU0]);
    unplugged
        .threads
        .change(|threads| threads.retain(|thread| thread.cgroup != CgroupId(VCPU1)));
    unplugged.cgroups.retain(|fact| fact.id != CgroupId(VCPU1));
    last(&mut first, &unplugged, 1);
    let kept = first.unsaved();
    let text = serde_json::to_string(&kept[0].1).expect("it is plain data");
    let kept = vec![(kept[0].0, serde_json::from_str(&text).expect("as written"))];
    let mut next = Fleet::new(0);
    next.recall(kept, &unplugged, 2);
    let vm = last(&mut next, &unplugged, 2);
    assert_eq!(vm.throttle_durations.map(|all| all.count()), Some(10));
}

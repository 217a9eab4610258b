//! CPU time charged to quotas, and threads that were running when a quota ran out.

use super::{CONTAINER, POD, facts, in_first_bucket, read, retired, thread, vcpu, vm};
use crate::facts::{Facts, HitFact, RetiredFact, ThreadClass, ThreadFact, ThrottlingFacts};
use crate::fleet::kept::Kept;
use crate::fleet::registry::Fleet;
use crate::snapshot::Quota;
use crate::vocab::{CgroupId, Comm, Durations, Owner, Role, SchedClass, Scope, Throttle};

fn level(levels: &[Quota], scope: Scope) -> &Quota {
    let level = levels.iter().find(|one| one.scope == scope);
    level.expect("it has this level")
}

fn used(levels: &[Quota], scope: Scope) -> [u64; 6] {
    let level = level(levels, scope);
    Role::ALL.map(|role| level.used_ns.get(&role).copied().unwrap_or(0))
}

fn ended(owner: Owner, cgroup: Option<CgroupId>, cpu_ns: u64) -> RetiredFact {
    let one = retired(owner, "worker", cpu_ns);
    RetiredFact {
        class: ThreadClass {
            cgroup,
            ..one.class
        },
        ..one
    }
}

#[test]
fn each_role_is_charged_to_levels_of_its_threads() {
    let own = Owner::Vm(vm(100));
    let virtiofsd = ThreadFact {
        cgroup: POD,
        process_comm: Comm::new("virtiofsd"),
        ..thread(Owner::Pod(POD), 200, "vring_worker", 40)
    };
    let elsewhere = ThreadFact {
        cgroup: CgroupId(1),
        ..thread(own, 103, "qemu-system-x86", 500)
    };
    let living = vec![vcpu(vm(100), 101, 0, 1000), elsewhere, virtiofsd];
    let gone = vec![
        ended(own, Some(CONTAINER), 5),
        // A cgroup that was removed with its threads, and an unknown cgroup.
        ended(own, Some(CgroupId(77)), 9),
        ended(own, None, 11),
    ];
    let mut fleet = Fleet::new(0);
    let (vms, _) = read(&mut fleet, &facts(living, gone), "web", 0);
    assert_eq!(used(&vms[0].quota, Scope::Pod), [1000, 0, 40, 0, 5, 0]);
    assert_eq!(used(&vms[0].limits, Scope::Pod), [1000, 0, 40, 0, 5, 0]);
    assert_eq!(used(&vms[0].quota, Scope::Container), [1000, 0, 0, 0, 5, 0]);
    assert!(
        [POD, CONTAINER]
            .iter()
            .all(|id| fleet.levels().contains(id))
    );
}

/// Limits apply to the fair class only: a thread is charged for the time that it used
/// there, also after it ended.
#[test]
fn time_of_realtime_threads_is_not_charged_to_limits() {
    let own = Owner::Vm(vm(100));
    let in_class = |sched_class, cpu_ns| ThreadFact {
        sched_class: Some(sched_class),
        ..vcpu(vm(100), 101, 0, cpu_ns)
    };
    let mut fleet = Fleet::new(u64::MAX);
    let worker = thread(own, 102, "worker", 1);
    let mut used_by_vcpu = |thread, ended| {
        let facts = facts(
            [thread, Some(worker.clone())]
                .into_iter()
                .flatten()
                .collect(),
            ended,
        );
        let (vms, _) = read(&mut fleet, &facts, "web", 0);
        (used(&vms[0].quota, Scope::Pod)[0], vms[0].roles[0].cpu_ns)
    };
    let fair = in_class(SchedClass::Fair, 100);
    assert_eq!(used_by_vcpu(Some(fair), vec![]), (100, 100));
    let realtime = in_class(SchedClass::Realtime, 500);
    assert_eq!(used_by_vcpu(Some(realtime), vec![]), (100, 500));
    let deadline = in_class(SchedClass::Deadline, 600);
    assert_eq!(used_by_vcpu(Some(deadline), vec![]), (100, 600));
    let fair = in_class(SchedClass::Fair, 650);
    assert_eq!(used_by_vcpu(Some(fair), vec![]), (150, 650));
    let realtime = in_class(SchedClass::Realtime, 900);
    assert_eq!(used_by_vcpu(Some(realtime), vec![]), (150, 900));
    let one = ended(own, None, 950);
    let ended = RetiredFact {
        class: ThreadClass {
            vcpu_id: Some(0),
            ..one.class
        },
        ..one
    };
    assert_eq!(used_by_vcpu(None, vec![ended]), (150, 950));
}

/// The counters of a VMM that is restarted in its pod continue.
#[test]
fn used_quota_never_falls() {
    let mut fleet = Fleet::new(u64::MAX);
    let virtiofsd = |cpu_ns| ThreadFact {
        process_comm: Comm::new("virtiofsd"),
        ..thread(Owner::Pod(POD), 200, "virtiofsd", cpu_ns)
    };
    let first = vec![vcpu(vm(100), 101, 0, 1000), virtiofsd(7)];
    read(&mut fleet, &facts(first, Vec::new()), "web", 0);
    read(&mut fleet, &facts(vec![virtiofsd(8)], Vec::new()), "web", 1);
    let again = facts(vec![vcpu(vm(300), 301, 0, 30), virtiofsd(9)], Vec::new());
    let (vms, _) = read(&mut fleet, &again, "web", 2);
    assert_eq!(used(&vms[0].quota, Scope::Pod), [1030, 0, 9, 0, 0, 0]);
}

#[test]
fn throttling_is_shown_if_tracked() {
    let own = Owner::Vm(vm(100));
    let read_with = |throttling| {
        let facts = Facts {
            throttling,
            ..facts(vec![vcpu(vm(100), 101, 0, 1000)], Vec::new())
        };
        let (vms, _) = read(&mut Fleet::new(0), &facts, "web", 0);
        let seen = level(&vms[0].quota, Scope::Pod).throttle;
        (seen, vms[0].roles[0].throttle_hits)
    };
    assert_eq!(read_with(None), (None, None));
    let fact = Throttle {
        throttles: 3,
        wall_ns: 10,
        unthrottles: Durations {
            counts: in_first_bucket(2),
            sum_ns: 15,
        },
    };
    let class = ThreadClass {
        vcpu_id: Some(0),
        ..ended(own, Some(POD), 0).class
    };
    let (seen, hits) = read_with(Some(ThrottlingFacts {
        cgroups: [(POD, fact)].into_iter().collect(),
        hits: vec![HitFact { class, hits: 3 }],
    }));
    let seen = seen.expect("it is followed");
    assert_eq!((seen.wall_ns, seen.throttles, hits), (10, 3, Some(3)));
    assert_eq!(seen.unthrottles.count(), 2);
}

/// The emulator's time at the pod's and the container's level, with a worker in `cgroup`.
fn read_at(fleet: &mut Fleet, cgroup: CgroupId, cpu_ns: u64) -> [u64; 2] {
    let (vms, _) = read(fleet, &worker_at(cgroup, cpu_ns), "web", 0);
    [Scope::Pod, Scope::Container].map(|scope| used(&vms[0].quota, scope)[4])
}

fn worker_at(cgroup: CgroupId, cpu_ns: u64) -> Facts {
    let worker = ThreadFact {
        cgroup,
        ..thread(Owner::Vm(vm(100)), 102, "worker", cpu_ns)
    };
    facts(vec![vcpu(vm(100), 101, 0, 1000), worker], Vec::new())
}

/// The time that a thread used in a cgroup stays with this cgroup when the thread moves.
#[test]
fn moved_thread_leaves_time_to_former_level() {
    let mut fleet = Fleet::new(u64::MAX);
    assert_eq!(read_at(&mut fleet, CONTAINER, 100), [100, 100]);
    assert_eq!(read_at(&mut fleet, CgroupId(10), 150), [100, 100]);
    assert_eq!(read_at(&mut fleet, POD, 160), [110, 100]);
    assert_eq!(read_at(&mut fleet, CONTAINER, 170), [120, 110]);
}

#[test]
fn next_agent_keeps_time_of_moved_threads_at_former_level() {
    let mut fleet = Fleet::new(u64::MAX);
    read_at(&mut fleet, CONTAINER, 100);
    assert_eq!(read_at(&mut fleet, POD, 160), [160, 100]);
    let kept = fleet.unsaved().into_iter().map(|(vm, kept)| {
        let text = serde_json::to_string(&kept).expect("it is plain data");
        let kept: Kept = serde_json::from_str(&text).expect("it was written");
        (vm, kept)
    });
    let mut next = Fleet::new(u64::MAX);
    next.recall(kept.collect(), &worker_at(POD, 160), 0);
    assert_eq!(read_at(&mut next, POD, 170), [170, 100]);
    assert_eq!(read_at(&mut next, CONTAINER, 180), [180, 110]);
}

//! A pod whose processes move between the cgroups that Kata creates for them.

use super::{CONTAINER, POD, UID, facts, qemu, thread, vcpu, vm};
use crate::facts::{Bandwidth, CgroupFact, Facts, ThreadFact};
use crate::fleet::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{CgroupId, Comm, Owner, Role, Scope};

const STRAY: CgroupId = CgroupId(50);
const OVERHEAD: CgroupId = CgroupId(60);

/// A VM with its vCPU in one cgroup and its virtiofsd in another; `root` is the pod in
/// the VM's path.
fn host(vcpu_at: CgroupId, virtiofsd_at: CgroupId, root: CgroupId, ns: u64) -> Facts {
    let id = "ab".repeat(32);
    let slice = format!("kubepods-pod{}.slice", UID.replace('-', "_"));
    let threads = vec![
        ThreadFact {
            cgroup: vcpu_at,
            ..vcpu(vm(100), 101, 0, ns)
        },
        ThreadFact {
            cgroup: virtiofsd_at,
            process_comm: Comm::new("virtiofsd"),
            ..thread(Owner::Pod(root), 200, "vring_worker", ns)
        },
    ];
    let mut facts = facts(threads, Vec::new());
    let cgroup = |id, path: String| CgroupFact {
        id,
        parent: Some(CgroupId(1)),
        path: path.into(),
        bandwidth: Some(Bandwidth::default()),
        memory: None,
    };
    facts.cgroups.extend([
        cgroup(STRAY, format!("/{slice}:cri-containerd:{id}")),
        cgroup(OVERHEAD, format!("/kata_overhead/{id}")),
    ]);
    facts
}

fn read(fleet: &mut Fleet, facts: &Facts) -> Vm {
    for vm in fleet.unknown_vms(facts) {
        fleet.admit(vm, &qemu("sandbox-ab"), facts);
    }
    // The overhead cgroup exists regardless of its members.
    fleet.follow(facts, |path| {
        path.starts_with("/kata_overhead/").then_some(OVERHEAD)
    });
    let (mut vms, _) = fleet.account(facts, 0);
    vms.pop().expect("there is one VM")
}

#[test]
fn empty_overhead_cgroup_splits_no_vm() {
    let mut fleet = Fleet::new(0);
    let split = read(&mut fleet, &host(CONTAINER, OVERHEAD, POD, 10));
    assert_eq!(split.cgroup_layout, Some("split"));
    let pod = read(&mut fleet, &host(CONTAINER, CONTAINER, POD, 20));
    assert_eq!(pod.cgroup_layout, Some("pod"));
}

fn helper_ns(vm: &Vm) -> u64 {
    let level = vm.quota.iter().find(|level| level.scope == Scope::Pod);
    let level = level.expect("its pod has a limit");
    level.used_ns.get(&Role::Virtiofsd).copied().unwrap_or(0)
}

#[test]
fn helpers_that_move_with_their_vm_count_once() {
    let mut fleet = Fleet::new(0);
    let inside = |ns| host(CONTAINER, CONTAINER, POD, ns);
    let stray = |ns| host(STRAY, OVERHEAD, STRAY, ns);
    let mut used = |facts| {
        let vm = read(&mut fleet, &facts);
        let virtiofsd = vm.roles.iter().find(|one| one.role == Role::Virtiofsd);
        let virtiofsd = virtiofsd.expect("it has one");
        (virtiofsd.cpu_ns, virtiofsd.wait_ns)
    };
    assert_eq!(used(inside(1000)), (1000, Some(100)));
    assert_eq!(used(stray(1030)), (1030, Some(103)));
    assert_eq!(used(stray(1050)), (1050, Some(105)));
    assert_eq!(used(inside(1070)), (1070, Some(107)));
}

#[test]
fn limit_includes_helper_time_before_and_after_absence() {
    let mut fleet = Fleet::new(0);
    let inside = |ns| host(CONTAINER, CONTAINER, POD, ns);
    assert_eq!(helper_ns(&read(&mut fleet, &inside(1000))), 1000);
    read(&mut fleet, &host(OVERHEAD, OVERHEAD, POD, 1010));
    read(&mut fleet, &host(STRAY, OVERHEAD, STRAY, 1030));
    read(&mut fleet, &host(STRAY, OVERHEAD, STRAY, 1050));
    assert_eq!(helper_ns(&read(&mut fleet, &inside(1070))), 1020);
    assert_eq!(helper_ns(&read(&mut fleet, &inside(1075))), 1025);
}

#[test]
fn helpers_are_watched_while_their_vm_is_in_the_overhead_cgroup() {
    let mut fleet = Fleet::new(0);
    let watched = |fleet: &mut Fleet, facts| {
        read(fleet, &facts);
        let watched = fleet.watched().into_iter();
        let mut watched: Vec<_> = watched.map(|one| (one.cgroup, one.pod)).collect();
        watched.sort_unstable();
        watched
    };
    let inside = host(CONTAINER, CONTAINER, POD, 10);
    let booting = host(OVERHEAD, OVERHEAD, POD, 20);
    let expected = [(POD, POD), (OVERHEAD, POD)];
    assert_eq!(watched(&mut fleet, inside), expected);
    assert_eq!(watched(&mut fleet, booting), expected);
}

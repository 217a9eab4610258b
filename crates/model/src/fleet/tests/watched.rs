//! The cgroups that are watched for VMs and their pods.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{POD, cpu_ns, facts, qemu, thread, vcpu, vm};
use crate::facts::{CgroupFact, ProcessFact, ThreadFact, WatchedCgroup};
use crate::fleet::registry::Fleet;
use crate::vocab::{CgroupId, Comm, Owner, Role};

#[test]
fn pod_cgroup_is_watched_for_vm_at_any_depth() {
    let mut fleet = Fleet::new(0);
    let facts = facts(vec![vcpu(vm(100), 101, 0, 1)], vec![]);
    for vm in fleet.unknown_vms(&facts) {
        fleet.admit(vm, &qemu("a"), &facts);
    }
    assert_eq!(
        fleet.watched(),
        FxHashSet::from_iter([WatchedCgroup {
            cgroup: POD,
            pod: POD
        }])
    );
}

#[test]
fn kata_overhead_cgroup_is_watched_for_its_pod() {
    let id = "cd".repeat(32);
    let overhead = CgroupFact {
        id: CgroupId(50),
        parent: Some(CgroupId(1)),
        path: format!("/kata_overhead/{id}").into(),
        bandwidth: None,
        memory: None,
    };
    let outside = |tid, owner| ThreadFact {
        cgroup: CgroupId(50),
        ..thread(owner, tid, "qemu-system-x86", 1)
    };
    let threads = vec![
        vcpu(vm(100), 101, 0, 1),
        outside(100, Owner::Vm(vm(100))),
        outside(102, Owner::Vm(vm(100))),
    ];
    let mut facts = facts(threads, vec![]);
    let pod = Arc::clone(&facts.cgroups[2].path);
    facts.cgroups[3].path = format!("{pod}/kata_{id}").into();
    facts.cgroups.push(overhead);
    let mut fleet = Fleet::new(0);
    for vm in fleet.unknown_vms(&facts) {
        fleet.admit(vm, &qemu("sandbox"), &facts);
    }
    fleet.follow(&facts, |path| {
        (path == format!("/kata_overhead/{id}")).then_some(CgroupId(50))
    });
    let expected = [(POD, POD), (CgroupId(50), POD)];
    let expected = expected.map(|(cgroup, pod)| WatchedCgroup { cgroup, pod });
    assert_eq!(fleet.watched(), FxHashSet::from_iter(expected));
    let (vms, _) = fleet.account(&facts, 0);
    assert_eq!(
        (vms[0].cgroup_layout, vms[0].runtime),
        (Some("split"), Some("kata"))
    );
    let outside: Vec<_> = vms[0]
        .roles
        .iter()
        .map(|role| (role.role, role.outside_pod))
        .collect();
    assert_eq!(
        outside,
        [(Role::Vcpu, Some(0)), (Role::Emulator, Some(2))],
        "what lies in the overhead cgroup is outside of the pod's"
    );
}

/// As `ctr run … demo1` creates it with `sandbox_cgroup_only=false`.
#[test]
fn sandbox_with_custom_name_has_overhead_cgroup() {
    let cgroup = |id, path: &str| CgroupFact {
        id: CgroupId(id),
        parent: Some(CgroupId(1)),
        path: path.into(),
        bandwidth: None,
        memory: None,
    };
    let mut qemu = vcpu(vm(100), 101, 0, 5);
    qemu.cgroup = CgroupId(60);
    let mut virtiofsd = thread(Owner::Pod(CgroupId(60)), 200, "virtiofsd", 7);
    virtiofsd.cgroup = CgroupId(61);
    virtiofsd.process_comm = Comm::new("virtiofsd");
    let mut facts = facts(vec![qemu, virtiofsd], vec![]);
    facts.cgroups.push(cgroup(60, "/default/kata_demo1"));
    facts.cgroups.push(cgroup(61, "/kata_overhead/demo1"));
    let args = [
        "qemu-system-x86_64",
        "-name",
        "sandbox-demo1",
        "-qmp",
        "unix:/run/vc/vm/demo1/qmp.sock",
    ];
    let process = ProcessFact {
        args: args.map(str::to_owned).to_vec(),
        ..ProcessFact::default()
    };
    let mut fleet = Fleet::new(0);
    fleet.admit(vm(100), &process, &facts);
    fleet.follow(&facts, |path| {
        (path == "/kata_overhead/demo1").then_some(CgroupId(61))
    });
    let expected = [60, 61].map(|cgroup| WatchedCgroup {
        cgroup: CgroupId(cgroup),
        pod: CgroupId(60),
    });
    assert_eq!(fleet.watched(), FxHashSet::from_iter(expected));
    let (vms, _) = fleet.account(&facts, 0);
    assert_eq!(cpu_ns(&vms[0], Role::Virtiofsd), 7);
    assert_eq!(vms[0].cgroup_layout, Some("split"));
}

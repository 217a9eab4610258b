//! A pod whose processes move between the cgroups that Kata makes for them.

use super::{CONTAINER, POD, UID, facts, qemu, thread, vcpu, vm};
use crate::facts::{Bandwidth, CgroupFact, CgroupId, Comm, Facts, Owner, ThreadFact};
use crate::fleet::Fleet;
use crate::snapshot::Vm;

const STRAY: CgroupId = CgroupId(50);
const OVERHEAD: CgroupId = CgroupId(60);

/// A VM whose vCPU sits in one cgroup and whose virtiofsd in another; `root` is what the
/// VM's path names as its pod.
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
    for vm in fleet.strangers(facts) {
        fleet.admit(vm, &qemu("sandbox-ab"), facts);
    }
    // The overhead cgroup is there, whoever is in it.
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

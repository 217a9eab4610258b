//! A VM that Kata's Go runtime placed outside its pod: systemd driver,
//! `sandbox_cgroup_only=false`.

use super::{UID, facts, thread, vcpu, vm};
use crate::facts::{Bandwidth, CgroupFact};
use crate::fleet::registry::Fleet;
use crate::vocab::{CgroupId, Owner};

const STRAY: CgroupId = CgroupId(50);
const OVERHEAD: CgroupId = CgroupId(60);

#[test]
fn all_threads_of_stray_vm_are_outside_pod() {
    let id = "ab".repeat(32);
    let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
    let paths = [
        (STRAY, format!("/{slice}:cri-containerd:{id}")),
        (OVERHEAD, format!("/kata_overhead/{id}")),
    ];
    let shim = thread(Owner::Pod(STRAY), 102, "containerd-shim", 30);
    let mut threads = vec![
        vcpu(vm(100), 100, 0, 10),
        thread(Owner::Vm(vm(100)), 101, "qemu-system-x86", 20),
        shim,
    ];
    for (thread, cgroup) in threads.iter_mut().zip([STRAY, STRAY, OVERHEAD]) {
        thread.cgroup = cgroup;
    }
    let mut facts = facts(threads, Vec::new());
    facts.cgroups.truncate(1);
    facts.cgroups.extend(paths.map(|(id, path)| CgroupFact {
        id,
        parent: Some(CgroupId(1)),
        path: path.into(),
        bandwidth: Some(Bandwidth::default()),
        memory: None,
    }));
    let mut fleet = Fleet::new(0);
    for vm in fleet.unknown_vms(&facts) {
        fleet.admit(vm, &super::qemu("sandbox-ab"), &facts);
    }
    fleet.follow(&facts, |path| {
        path.starts_with("/kata_overhead").then_some(OVERHEAD)
    });
    let (vms, _) = fleet.account(&facts, 0);
    let [web] = &vms[..] else { panic!("{vms:?}") };
    assert_eq!(web.uid.as_deref(), Some(UID));
    assert_eq!(
        (web.cgroup_layout, web.runtime),
        (Some("stray"), Some("kata"))
    );
    let roles = web.roles.iter().map(|one| (one.threads, one.outside_pod));
    let roles: Vec<_> = roles.collect();
    assert_eq!(roles, [(1, Some(1)); 3], "vCPU, emulator and helper");
    assert!(web.limits.is_empty());
}

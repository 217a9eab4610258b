//! Names and roles of threads.

use virtlens_model::vocab::Role;
use virtlens_tests::process::tids;

use crate::agent::{tids_of, vm};
use crate::domain::Threads;
use crate::{DB, PLAIN, bench};

fn sorted(mut tids: Vec<u32>) -> Vec<u32> {
    tids.sort_unstable();
    tids
}

#[test]
fn domains_have_names_and_runtime_libvirt() {
    let mut bench = bench();
    let snapshot = bench.agent.read();
    let names: Vec<&str> = snapshot.vms.iter().map(|vm| &*vm.vm).collect();
    assert_eq!(names, [DB, PLAIN]);
    for name in [DB, PLAIN] {
        let vm = vm(&snapshot, name);
        assert_eq!((vm.vmm, vm.runtime), ("qemu", Some("libvirt")));
        assert_eq!(vm.cgroup_layout, Some("machine"));
    }
}

#[test]
fn vcpus_iothreads_and_workers_equal_monitor() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let snapshot = bench.agent.read();
    let vm = vm(&snapshot, DB);
    assert_eq!(vm.pid, threads.vmm);
    assert_eq!(threads.vhost.len(), 2, "a worker for each queue");
    assert_eq!(tids_of(vm, Role::Vcpu), sorted(threads.vcpus));
    // io_uring workers start and end at any time.
    let mut iothreads = tids_of(vm, Role::Iothread);
    let others = [threads.io_workers, Threads::of(&bench.libvirt).io_workers].concat();
    iothreads.retain(|tid| !others.contains(tid));
    assert_eq!(iothreads, sorted(threads.iothreads));
    assert_eq!(tids_of(vm, Role::Vhost), sorted(threads.vhost));
}

/// libvirt moves the process that it started. That process forks, sleeps, and leaves the
/// work to a child, which stays in the cgroup of libvirtd.
#[test]
fn virtiofsd_child_in_libvirt_cgroup_belongs_to_vm() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    assert_eq!(threads.virtiofsd.len(), 2, "{:?}", threads.virtiofsd);
    let child = threads.virtiofsd[1];
    let outside = crate::domain::cgroup_of(child);
    assert!(
        !outside.contains("libvirt-qemu"),
        "the child is in {outside}"
    );
    bench.under("virtiofs", |bench| {
        let all = threads.virtiofsd.iter().flat_map(|pid| tids(*pid));
        let all: Vec<u32> = all.map(i32::cast_unsigned).collect();
        let snapshot = bench.agent.read();
        assert_eq!(tids_of(vm(&snapshot, DB), Role::Virtiofsd), sorted(all));
    });
}

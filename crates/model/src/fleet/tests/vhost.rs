//! Devices of vhost workers.

use std::sync::Arc;

use super::{facts, read, thread, vcpu, vm};
use crate::facts::{ThreadFact, ThreadKind};
use crate::fleet::Fleet;
use crate::snapshot::Vm;
use crate::vocab::{Owner, ThreadKey, VhostDevice};

/// A VM with the vhost workers `tids`; only the devices in `devices` are known.
fn read_with(fleet: &mut Fleet, tids: &[u32], devices: &[(u32, VhostDevice)]) -> Vm {
    let workers = tids.iter().map(|tid| ThreadFact {
        kind: ThreadKind::UserWorker,
        ..thread(Owner::Vm(vm(100)), *tid, "vhost-100", 10)
    });
    let mut threads = vec![vcpu(vm(100), 101, 0, 1000)];
    threads.extend(workers);
    let key = |tid: u32| {
        let mut all = threads.iter();
        let start_ns = all.find(|one| one.tid == tid).map_or(0, |one| one.start_ns);
        ThreadKey { start_ns, tid }
    };
    let devices = devices.iter().map(|(tid, device)| (key(*tid), *device));
    let devices = Arc::new(devices.collect());
    let mut facts = facts(threads, Vec::new());
    facts.vhost_devices = devices;
    let (mut vms, _) = read(fleet, &facts, "a", 0);
    vms.remove(0)
}

fn devices(vm: &Vm) -> Vec<(u32, Option<VhostDevice>)> {
    let workers = vm.workers.iter();
    let of_workers: Vec<_> = workers
        .filter_map(|one| Some((one.tid?, one.device)))
        .collect();
    let threads = vm.threads.iter().filter(|one| one.tid != 101);
    let of_threads: Vec<_> = threads.map(|one| (one.tid, one.device)).collect();
    assert_eq!(of_workers, of_threads);
    of_workers
}

#[test]
fn workers_with_same_name_have_their_own_devices() {
    let known = [(103, VhostDevice::Vsock), (102, VhostDevice::Net)];
    let vm = read_with(&mut Fleet::new(0), &[102, 103, 104], &known);
    let expected = [
        (102, Some(VhostDevice::Net)),
        (103, Some(VhostDevice::Vsock)),
        (104, None),
    ];
    assert_eq!(devices(&vm), expected);
}

#[test]
fn thread_other_than_vhost_worker_has_no_device() {
    let vm = read_with(&mut Fleet::new(0), &[102], &[(101, VhostDevice::Net)]);
    assert_eq!(devices(&vm), [(102, None)]);
    assert!(vm.threads.iter().all(|thread| thread.device.is_none()));
}

#[test]
fn reused_tid_does_not_inherit_the_device() {
    let mut fleet = Fleet::new(0);
    let worker = ThreadFact {
        kind: ThreadKind::UserWorker,
        ..thread(Owner::Vm(vm(100)), 102, "vhost-100", 10)
    };
    let former = ThreadKey {
        start_ns: worker.start_ns + 1,
        tid: 102,
    };
    let mut facts = facts(vec![vcpu(vm(100), 101, 0, 1000), worker], Vec::new());
    facts.vhost_devices = Arc::new([(former, VhostDevice::Net)].into_iter().collect());
    let (vms, _) = read(&mut fleet, &facts, "a", 0);
    assert_eq!(devices(&vms[0]), [(102, None)]);
}

#[test]
fn worker_with_reused_number_has_its_own_device() {
    let mut fleet = Fleet::new(0);
    let both = [(102, VhostDevice::Net), (103, VhostDevice::Vsock)];
    read_with(&mut fleet, &[102, 103], &both);
    let vm = read_with(&mut fleet, &[103], &both[1..]);
    let shown: Vec<_> = vm.workers.iter().map(|one| (one.tid, one.device)).collect();
    let expected = [(None, None), (Some(103), Some(VhostDevice::Vsock))];
    assert_eq!(shown, expected);
}

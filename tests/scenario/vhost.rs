//! The device of each vhost worker: all workers of a VM have the same name.
//!
//! The oracle is CPU time: under the flood the worker of vhost-net is busy, and that of
//! vhost-vsock is idle.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::Vm;
use virtlens_model::vocab::Role;
use virtlens_model::vocab::VhostDevice;
use virtlens_probe::loader::Loader;
use virtlens_tests::reader::options;
use virtlens_tests::{Minivm, eventually, process};

use crate::pods::{self, Reader, burned, millis};

/// The devices of a VM's vhost workers, by tid.
fn devices(vm: &Vm) -> BTreeMap<u32, VhostDevice> {
    let threads = vm.threads.iter();
    let of_threads: BTreeMap<_, _> = threads
        .filter_map(|thread| Some((thread.tid, thread.device?)))
        .collect();
    let workers = vm.workers.iter();
    let of_workers = workers.filter_map(|worker| Some((worker.tid?, worker.device?)));
    assert_eq!(of_workers.collect::<BTreeMap<_, _>>(), of_threads);
    of_threads
}

/// `kernels.toml` lists the kernels on which devices must be known; on others there must
/// be none.
#[test]
fn vhost_workers_have_their_device() {
    let reader = Reader::new();
    let pod = reader.named().clone();
    let used = |tid: u32| pods::times(&[(tid, tid.cast_signed())]);
    let tids = pod.vhost_tids();
    let before: Vec<_> = tids.iter().map(|tid| used(*tid)).collect();
    reader.under("vhost", || sleep(Duration::from_secs(2)));
    let mut by_use: Vec<(u64, u32)> = tids
        .iter()
        .zip(&before)
        .map(|(tid, before)| (burned(before, &used(*tid)), *tid))
        .collect();
    by_use.sort_unstable();
    let [(idle_ns, vsock), (busy_ns, net)] = by_use[..] else {
        panic!("the pod has two workers: {by_use:?}")
    };
    println!("used {} and {} ms", millis(busy_ns), millis(idle_ns));
    assert!(busy_ns > 20_000_000 && idle_ns * 10 < busy_ns, "{by_use:?}");

    for loader in Loader::ALL {
        let options = Options {
            loader: *loader,
            ..options()
        };
        let mut collector = Collector::open(&options).expect("the host can be read");
        let mut read = |pod| {
            eventually("both workers are seen", || {
                let snapshot = collector.collect();
                let vm = snapshot.vms.iter().find(|vm| vm.pid == pod)?.clone();
                let workers = vm.roles.iter().find(|one| one.role == Role::Vhost);
                (workers.is_none_or(|one| one.threads == 2)).then_some(vm)
            })
        };
        let plain = &reader.scenario.pods["plain"];
        assert_eq!(devices(&read(plain.vmm_pid)), BTreeMap::new());
        let found = devices(&read(pod.vmm_pid));
        println!("{loader}: {found:?}");
        if found.is_empty() {
            continue;
        }
        let expected = [(net, VhostDevice::Net), (vsock, VhostDevice::Vsock)];
        assert_eq!(found, BTreeMap::from(expected));
        let prefix = if *loader == Loader::default() {
            String::new()
        } else {
            format!("{loader}_")
        };
        println!("VMTEST FEATURE {prefix}vhost_devices");
    }
}

/// The devices are read before the first reading that shows a VM.
#[test]
fn worker_of_new_vm_has_its_device_at_first_reading() {
    let mut reader = Reader::new();
    let snapshot = reader.read();
    let is_known = !devices(pods::vm(&snapshot, reader.named())).is_empty();
    let args = ["--vcpus", "1", "--vhost-net", "later"];
    let guest = Minivm::start_launch(Minivm::launch().args(args));
    let (_, worker) = process::vhost_worker(guest.pid()).expect("it has a worker");
    let vm = eventually("its VM is met", || {
        let snapshot = reader.read();
        let found = snapshot.vms.iter().find(|vm| vm.pid == guest.pid());
        found.cloned()
    });
    let expected = is_known.then_some((worker.cast_unsigned(), VhostDevice::Net));
    assert_eq!(devices(&vm), expected.into_iter().collect());
}

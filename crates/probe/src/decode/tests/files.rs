//! Open files of vCPUs and of vhost devices.

use virtlens_abi as abi;
use virtlens_model::vocab::{ThreadKey, VhostDevice, VmKey};
use zerocopy::{FromZeros, IntoBytes};

use super::{Stream, head};
use crate::Error;
use crate::decode::OpenFiles;

fn vhost_worker(tid: u32, device: u32) -> abi::record::VhostWorkerRecord {
    let mut record = abi::record::VhostWorkerRecord::new_zeroed();
    record.head = head(abi::record::RECORD_VHOST_WORKER, size_of_val(&record));
    (record.tid, record.start_ns, record.device) = (tid, 700, device);
    (record.owner.id, record.owner.tgid) = (500, 7);
    record
}

#[test]
fn open_files_give_vcpus_and_vhost_workers() {
    let mut fd = abi::record::VcpuFdRecord::new_zeroed();
    fd.head = head(abi::record::RECORD_VCPU_FD, size_of_val(&fd));
    (fd.owner.id, fd.owner.tgid, fd.vcpu_id, fd.tid) = (500, 7, 3, 9);
    let (net, vsock) = (
        vhost_worker(21, abi::record::VHOST_NET),
        vhost_worker(22, abi::record::VHOST_VSOCK),
    );
    let mut stream = Stream::default();
    // If two processes have a file open, its worker is emitted twice.
    for bytes in [
        net.as_bytes(),
        fd.as_bytes(),
        vsock.as_bytes(),
        net.as_bytes(),
    ] {
        stream.push(bytes);
    }
    let mut files = OpenFiles::default();
    files.feed(stream.0.bytes()).expect("it is whole");
    let vm = VmKey {
        start_ns: 500,
        tgid: 7,
    };
    assert!(files.has_vcpus_of(vm));
    let vms = files.into_vms();
    let found = &vms[&vm];
    assert_eq!(
        (vms.len(), found.ran().collect::<Vec<_>>()),
        (1, vec![(3, 9)])
    );
    let device = |tid| {
        let thread = ThreadKey { start_ns: 700, tid };
        found.vhost_devices.get(&thread).copied()
    };
    assert_eq!(device(21), Some(VhostDevice::Net));
    assert_eq!(device(22), Some(VhostDevice::Vsock));
    assert_eq!(found.vhost_devices.len(), 2);
}

#[test]
fn unknown_vhost_device_is_a_broken_record() {
    let mut stream = Stream::default();
    stream.push(vhost_worker(21, 3).as_bytes());
    let fed = OpenFiles::default().feed(stream.0.bytes());
    assert!(
        matches!(fed, Err(Error::Record { offset: 0, .. })),
        "{fed:?}"
    );
}

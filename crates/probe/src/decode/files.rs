//! Results of the pass over open files.

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::vocab::{Owner, ThreadKey, VhostDevice, VmKey};

use super::owner;
use super::stream::Records;
use crate::Error;

/// The pass over open files, decoded part by part.
#[derive(Debug, Default)]
pub struct OpenFiles {
    vms: FxHashMap<VmKey, OpenedByVm>,
}

/// The open files of one VM.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OpenedByVm {
    /// By the address of each vCPU: its id and the last thread that ran it, if it ever ran.
    vcpus: FxHashMap<u64, Option<(u32, u32)>>,
    /// The device of each vhost worker.
    pub vhost_devices: FxHashMap<ThreadKey, VhostDevice>,
}

impl OpenFiles {
    /// Decodes a part of the pass, which consists of whole records.
    ///
    /// # Errors
    /// [`Error::Record`] if the stream is invalid.
    pub fn feed(&mut self, stream: &[u8]) -> Result<(), Error> {
        for record in Records::new(stream) {
            let record = record?;
            match record.kind {
                abi::record::RECORD_VCPU_FD => {
                    let (fd, _) = record.of::<abi::record::VcpuFdRecord>()?;
                    if let Owner::Vm(vm) = owner(fd.owner) {
                        // KVM keeps the last thread that ran it, also after that thread
                        // has exited.
                        let ran = (fd.tid != 0).then_some((fd.vcpu_id, fd.tid));
                        let of_vm = self.vms.entry(vm).or_default();
                        of_vm.vcpus.insert(fd.instance, ran);
                    }
                }
                abi::record::RECORD_VHOST_WORKER => {
                    let (worker, _) = record.of::<abi::record::VhostWorkerRecord>()?;
                    let device = match worker.device {
                        abi::record::VHOST_NET => VhostDevice::Net,
                        abi::record::VHOST_VSOCK => VhostDevice::Vsock,
                        _ => return Err(record.broken("unknown vhost device")),
                    };
                    if let Owner::Vm(vm) = owner(worker.owner) {
                        let thread = ThreadKey {
                            start_ns: worker.start_ns,
                            tid: worker.tid,
                        };
                        let of_vm = self.vms.entry(vm).or_default();
                        of_vm.vhost_devices.insert(thread, device);
                    }
                }
                _ => return Err(record.broken("unknown kind")),
            }
        }
        Ok(())
    }

    /// Whether the pass has seen a vCPU of this VM.
    pub fn has_vcpus_of(&self, vm: VmKey) -> bool {
        self.vms.get(&vm).is_some_and(|one| !one.vcpus.is_empty())
    }

    /// Returns the open files by VM.
    pub fn into_vms(self) -> FxHashMap<VmKey, OpenedByVm> {
        self.vms
    }
}

impl OpenedByVm {
    /// The ids of the vCPUs that a thread has run, and these threads: a thread may have
    /// exited since.
    pub fn ran(&self) -> impl Iterator<Item = (u32, u32)> {
        self.vcpus.values().copied().flatten()
    }
}

//! Results of the pass over open files.

use rustc_hash::FxHashMap;
use virtlens_abi as abi;
use virtlens_model::facts::VmFact;
use virtlens_model::vocab::{Owner, ThreadKey, VhostDevice, VmKey};

use super::owner;
use super::stream::Records;
use crate::Error;

/// The pass over open files, decoded part by part.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// The VMs with the `kvm_vcpu` of each vCPU, and its id if a thread ever ran it.
    vcpus: FxHashMap<VmKey, FxHashMap<u64, Option<u32>>>,
    vhost_devices: FxHashMap<ThreadKey, VhostDevice>,
}

/// The results of the pass over open files.
#[derive(Debug, Default)]
pub struct Found {
    /// The VMs, and the number of vCPUs of their processes.
    pub vms: Vec<VmFact>,
    /// The ids of the vCPUs that a thread has run: it may have exited since.
    pub has_run: FxHashMap<VmKey, Vec<u32>>,
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
                abi::record::RECORD_VCPU_FD => self.vcpu(record.of()?.0),
                abi::record::RECORD_VHOST_WORKER => {
                    let (worker, _) = record.of::<abi::record::VhostWorkerRecord>()?;
                    let device = match worker.device {
                        abi::record::VHOST_NET => VhostDevice::Net,
                        abi::record::VHOST_VSOCK => VhostDevice::Vsock,
                        _ => return Err(record.broken("unknown vhost device")),
                    };
                    let thread = ThreadKey {
                        start_ns: worker.start_ns,
                        tid: worker.tid,
                    };
                    self.vhost_devices.insert(thread, device);
                }
                _ => return Err(record.broken("unknown kind")),
            }
        }
        Ok(())
    }

    fn vcpu(&mut self, fd: &abi::record::VcpuFdRecord) {
        if let Owner::Vm(vm) = owner(fd.owner) {
            // KVM keeps the last thread that ran it, also after that thread has exited.
            let has_run = (fd.tid != 0).then_some(fd.vcpu_id);
            let vcpus = self.vcpus.entry(vm).or_default();
            vcpus.insert(fd.instance, has_run);
        }
    }

    /// Returns the results.
    pub fn found(self) -> Found {
        let mut found = Found {
            vhost_devices: self.vhost_devices,
            ..Found::default()
        };
        for (vm, vcpus) in self.vcpus {
            found.vms.push(VmFact {
                vm,
                vcpus: u32::try_from(vcpus.len()).unwrap_or(u32::MAX),
            });
            let has_run = vcpus.into_values().flatten().collect();
            found.has_run.insert(vm, has_run);
        }
        found
    }
}

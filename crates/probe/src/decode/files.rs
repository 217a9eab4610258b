//! What the pass over open files finds.

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
    /// The VMs with their vCPUs. Of each its id, if a thread ever ran it.
    vcpus: FxHashMap<VmKey, FxHashMap<u64, Option<u32>>>,
    vhost_devices: FxHashMap<ThreadKey, VhostDevice>,
}

/// What the pass over open files found.
#[derive(Debug, Default)]
pub struct Found {
    /// The VMs, and how many vCPUs their processes hold.
    pub vms: Vec<VmFact>,
    /// Those of the vCPUs, by id, that some thread ran: it may have ended since.
    pub has_run: FxHashMap<VmKey, Vec<u32>>,
    /// What each vhost worker serves.
    pub vhost_devices: FxHashMap<ThreadKey, VhostDevice>,
}

impl OpenFiles {
    /// Decodes a part of it, of whole records.
    ///
    /// # Errors
    /// [`Error::Record`] where the stream is broken.
    pub fn feed(&mut self, stream: &[u8]) -> Result<(), Error> {
        for record in Records::new(stream) {
            let record = record?;
            match record.kind {
                abi::RECORD_VCPU_FD => self.vcpu(record.of()?.0),
                abi::RECORD_VHOST_WORKER => {
                    let (worker, _) = record.of::<abi::VhostWorkerRecord>()?;
                    let device = match worker.device {
                        abi::VHOST_NET => VhostDevice::Net,
                        abi::VHOST_VSOCK => VhostDevice::Vsock,
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

    fn vcpu(&mut self, fd: &abi::VcpuFdRecord) {
        if let Owner::Vm(vm) = owner(fd.owner) {
            // KVM keeps the last thread that ran it, also when that has ended.
            let has_run = (fd.tid != 0).then_some(fd.vcpu_id);
            let vcpus = self.vcpus.entry(vm).or_default();
            vcpus.insert(fd.instance, has_run);
        }
    }

    /// What it found.
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

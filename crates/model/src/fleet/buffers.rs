//! Memory of an earlier reading, reused by the next one.

use crate::snapshot::{Quota, RoleUse, Thread, Vcpu, Vm, Worker};
use crate::vocab::VmKey;

/// Vectors for the next reading of one VM. Their sizes rarely change, and to free and
/// allocate those of hundreds of VMs costs a tenth of a reading.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) roles: Vec<RoleUse>,
    pub(super) threads: Vec<Thread>,
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) workers: Vec<Worker>,
    pub(super) quota: Vec<Quota>,
    pub(super) limits: Vec<Quota>,
}

impl Buffers {
    /// The vectors without the items of the earlier reading. They are dropped late, when the
    /// next ones replace them in the CPU caches.
    fn emptied(mut self) -> Self {
        self.roles.clear();
        self.threads.clear();
        self.vcpus.clear();
        self.workers.clear();
        self.quota.clear();
        self.limits.clear();
        self
    }
}

/// The vectors of a former reading, each with the process of its VM.
#[derive(Debug, Default)]
pub(super) struct Former(Vec<(u32, Buffers)>);

impl Former {
    /// Takes the vectors of VMs that are no longer needed.
    pub(super) fn of(vms: Vec<Vm>) -> Self {
        let buffers = |vm: Vm| {
            let buffers = Buffers {
                roles: vm.roles,
                threads: vm.threads,
                vcpus: vm.vcpus,
                workers: vm.workers,
                quota: vm.quota,
                limits: vm.limits,
            };
            (vm.pid, buffers)
        };
        // A new list, which is a tenth as large as that of the VMs.
        let mut all = Vec::with_capacity(vms.len());
        all.extend(vms.into_iter().map(buffers));
        Self(all)
    }

    /// The vectors of the VM at position `index`.
    pub(super) fn at(&self, index: usize) -> Option<&Buffers> {
        self.0.get(index).map(|(_, buffers)| buffers)
    }

    /// The empty vectors of the VM at position `index`, if it is `vm`: another VM may need
    /// much less memory, which would then never be freed.
    pub(super) fn buffers(&mut self, index: usize, vm: VmKey) -> Buffers {
        let known = self.0.get_mut(index);
        let known = known.filter(|(pid, _)| *pid == vm.tgid);
        let buffers = known.map(|(_, buffers)| std::mem::take(buffers));
        buffers.unwrap_or_default().emptied()
    }
}

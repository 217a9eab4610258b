//! Data of a VM that several families use, computed once per scrape.

use virtlens_model::snapshot::Vm;

use crate::identity::Identity;
use crate::vcpu_sums::VcpuSums;

/// The data of one VM.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) identity: Identity,
    pub(crate) vcpus: VcpuSums,
}

impl Prepared {
    pub(crate) fn of(vm: &Vm) -> Self {
        Self {
            identity: Identity::of(vm),
            vcpus: VcpuSums::of(&vm.vcpus),
        }
    }
}

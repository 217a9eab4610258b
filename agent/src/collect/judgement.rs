//! Judges the accounted VMs of a reading and completes them with the last judgement. The
//! result goes into the snapshot, which never changes.
//!
//! ```text
//! accounted ─► placement judged ─► placed ─► findings judged ─► judged ─► snapshot
//! ```

use virtlens_model::snapshot::Vm;

use super::collector::Collector;
use crate::collect::unapplied_limit;

impl Collector {
    /// Judges the VMs, if a judgement `is_due` at `at_ns`, and adds the last judgement.
    pub(super) fn judged(&mut self, vms: Vec<Vm>, at_ns: u64, is_due: bool) -> Vec<Vm> {
        if is_due {
            let cgroups = self.cgroups.as_ref().ok();
            self.placement.judge(&vms, &self.root, cgroups, at_ns);
        }
        let vms = self.placed(vms);
        if is_due {
            self.watch.judge(&vms, at_ns);
        }
        let vms = self.with_findings(vms);
        if is_due && !self.pcpu_series {
            without_residency(vms)
        } else {
            vms
        }
    }

    fn placed(&self, mut vms: Vec<Vm>) -> Vec<Vm> {
        let cgroups = self.cgroups.as_ref().ok();
        for vm in &mut vms {
            vm.topology = self.placement.topology(vm);
            vm.unapplied_limit = unapplied_limit::of(vm, cgroups);
        }
        vms
    }

    fn with_findings(&self, mut vms: Vec<Vm>) -> Vec<Vm> {
        for vm in &mut vms {
            vm.findings = self.watch.findings(vm);
        }
        vms
    }
}

/// Drops the residency of vCPUs, which was read for the judgement only.
fn without_residency(mut vms: Vec<Vm>) -> Vec<Vm> {
    let vcpus = vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
    vcpus.for_each(|vcpu| vcpu.residency_ns.clear());
    vms
}

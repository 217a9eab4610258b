//! Location of each vCPU, by its mask or by measurement.

use std::collections::BTreeMap;

use crate::judge::placement::types::{
    HelperPlacement, JUDGED_PERCENT, LOCATED_PERCENT, VcpuPlacement, VmPlacement,
};
use crate::vocab::topology::host::{HostPlace, HostTopology};
use crate::vocab::{CpuSet, Role};

/// A unit of the host (core, cache or node) on which a vCPU is located.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    /// Number of the unit on the host.
    pub(super) unit: u32,
    /// Whether the mask allows no other unit; otherwise the location was measured.
    pub(super) by_mask: bool,
}

/// Location of one vCPU.
pub(super) struct LocatedVcpu<'a> {
    pub(super) placement: &'a VcpuPlacement,
    /// The online CPUs in its mask, if the mask is known.
    pub(super) mask: Option<CpuSet>,
    pub(super) pinned: bool,
    pub(super) core: Option<Location>,
    pub(super) llc: Option<Location>,
    pub(super) node: Option<Location>,
    /// CPU time used, in thousandths of a CPU.
    pub(super) used_milli: u64,
}

impl LocatedVcpu<'_> {
    /// The only CPU in its mask, if there is just one.
    pub(super) fn only_cpu(&self) -> Option<u32> {
        let mask = self.mask.as_ref()?;
        (mask.len() == 1).then(|| mask.iter().next()).flatten()
    }

    /// CPU time used on the core where it is located, ns.
    pub(super) fn ns_on_core(&self, cpus: &[u32]) -> u64 {
        if self.core.is_some_and(|core| core.by_mask) {
            return self.placement.cpu_ns;
        }
        let there = self.placement.residency_ns.iter();
        there
            .filter(|(cpu, _)| cpus.contains(cpu))
            .fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }
}

/// One VM and the locations of its vCPUs.
#[derive(Clone, Copy)]
pub(super) struct LocatedVm<'a> {
    pub(super) placement: &'a VmPlacement,
    pub(super) vcpus: &'a [LocatedVcpu<'a>],
}

impl LocatedVm<'_> {
    pub(super) fn pinned(&self) -> u32 {
        let pinned = self.vcpus.iter().filter(|vcpu| vcpu.pinned).count();
        u32::try_from(pinned).unwrap_or(u32::MAX)
    }

    /// Union of its vCPUs' masks; `None` if one of them is unknown.
    pub(super) fn allowed(&self) -> Option<CpuSet> {
        let mut allowed = CpuSet::default();
        let mut last: Option<&CpuSet> = None;
        for vcpu in self.vcpus {
            let mask = vcpu.mask.as_ref()?;
            if last != Some(mask) {
                allowed.extend(mask.iter());
            }
            last = Some(mask);
        }
        Some(allowed)
    }
}

/// All VMs of the host, with the locations of their vCPUs.
pub(super) struct LocatedHost<'a> {
    pub(super) host: &'a HostTopology,
    pub(super) vms: &'a [VmPlacement],
    vcpus: Vec<Vec<LocatedVcpu<'a>>>,
    /// CPU time that vCPUs used on each node, in thousandths of a CPU.
    node_milli: BTreeMap<u32, u64>,
}

impl<'a> LocatedHost<'a> {
    pub(super) fn of(host: &'a HostTopology, vms: &'a [VmPlacement]) -> Self {
        let mut node_milli = BTreeMap::new();
        for vm in vms {
            for (cpu, ns) in vm.vcpus.iter().flat_map(|vcpu| &vcpu.residency_ns) {
                if let Some(node) = host.place(*cpu).and_then(|place| place.node) {
                    let sum: &mut u64 = node_milli.entry(node).or_default();
                    *sum = sum.saturating_add(milli(*ns, vm.window_ns));
                }
            }
        }
        let vcpus = vms.iter().map(|vm| locate(host, vm)).collect();
        Self {
            host,
            vms,
            vcpus,
            node_milli,
        }
    }

    pub(super) fn vm(&self, index: usize) -> LocatedVm<'_> {
        LocatedVm {
            placement: &self.vms[index],
            vcpus: &self.vcpus[index],
        }
    }

    /// CPU time that the host's vCPUs used on a node, in thousandths of a CPU.
    pub(super) fn milli_on_node(&self, node: u32) -> u64 {
        self.node_milli.get(&node).copied().unwrap_or(0)
    }

    /// CPU time used by all vCPUs of the host that may run on any of `cpus`, in
    /// thousandths of a CPU.
    pub(super) fn milli_allowed_on(&self, cpus: &CpuSet) -> u64 {
        let vcpus = self.vcpus.iter().flatten();
        let allowed = vcpus.filter(|vcpu| {
            let mask = vcpu.mask.as_ref();
            vcpu.used_milli > 0 && mask.is_none_or(|mask| mask.intersects(cpus))
        });
        allowed.fold(0, |sum, vcpu| sum.saturating_add(vcpu.used_milli))
    }

    /// Number of cores among `cpus`; the number of CPUs if cores are unknown.
    pub(super) fn cores_among(&self, cpus: &CpuSet) -> usize {
        if !self.host.knows_cores() {
            return cpus.len();
        }
        let lowest = |cpu: &u32| {
            let siblings = self.host.siblings(*cpu).iter();
            siblings.copied().find(|cpu| cpus.contains(*cpu)) == Some(*cpu)
        };
        cpus.iter().filter(lowest).count()
    }
}

/// Locations of a VM's vCPUs.
fn locate<'a>(host: &HostTopology, vm: &'a VmPlacement) -> Vec<LocatedVcpu<'a>> {
    let confined = is_confined(vm);
    let located = |placement: &'a VcpuPlacement| {
        let mask = placement.affinity.as_ref();
        let mask = mask
            .map(|mask| mask.intersection(host.online()))
            .filter(|mask| !mask.is_empty());
        let lowest = mask.as_ref().and_then(|mask| mask.iter().next());
        let allowed = lowest.zip(mask.as_ref());
        let ran = Ran::of(placement, vm.window_ns);
        let core = allowed.and_then(|(cpu, mask)| only_core(host, cpu, mask));
        let llc = allowed.and_then(|(cpu, mask)| {
            let llc = host.place(cpu)?.llc?;
            mask.is_subset(host.llc_cpus(llc)?).then_some(llc)
        });
        let node = allowed.and_then(|(cpu, mask)| {
            let node = host.place(cpu)?.node?;
            mask.is_subset(host.node_cpus(node)?).then_some(node)
        });
        let small = mask.as_ref().is_some_and(|mask| mask.len() == 1) || core.is_some();
        let location = |only: Option<u32>, level: fn(&HostPlace) -> Option<u32>| {
            let measured = || ran.as_ref()?.mostly_in(host, level);
            let location = |by_mask| move |unit| Location { unit, by_mask };
            only.map(location(true))
                .or_else(|| measured().map(location(false)))
        };
        LocatedVcpu {
            placement,
            pinned: small && !confined && mask.as_ref() != Some(host.online()),
            core: location(core, |place| place.core),
            llc: location(llc, |place| place.llc),
            node: location(node, |place| place.node),
            mask,
            used_milli: milli(placement.cpu_ns, vm.window_ns),
        }
    };
    vm.vcpus.iter().map(located).collect()
}

/// Whether a helper is a thread of the VMM or of the kernel for it, not of another process.
pub(super) fn is_vmm_helper(helper: &HelperPlacement) -> bool {
    matches!(helper.role, Role::Vhost | Role::Iothread | Role::Emulator)
}

/// Whether all threads of the VMM have the same mask. A single thread is not enough: its
/// mask counts as set for it.
fn is_confined(vm: &VmPlacement) -> bool {
    let helpers = vm.helpers.iter().filter(|helper| is_vmm_helper(helper));
    let vcpus = vm.vcpus.iter().filter_map(|vcpu| vcpu.affinity.as_ref());
    let mut masks = vcpus.chain(helpers.filter_map(|helper| helper.affinity.as_ref()));
    let Some(first) = masks.next() else {
        return false;
    };
    let mut others = masks.peekable();
    others.peek().is_some() && others.all(|mask| mask == first)
}

/// The core that holds all CPUs of a mask, if there is one. `cpu` is in the mask.
pub(super) fn only_core(host: &HostTopology, cpu: u32, mask: &CpuSet) -> Option<u32> {
    let core = host.place(cpu)?.core?;
    let siblings = host.core_cpus(core);
    let inside = mask.iter().take(siblings.len() + 1);
    let mut inside = inside.map(|cpu| siblings.contains(&cpu));
    inside.all(|inside| inside).then_some(core)
}

/// Run time of a vCPU that is long enough to be judged.
struct Ran<'a> {
    placement: &'a VcpuPlacement,
    /// Run time on known and unknown CPUs, ns.
    total_ns: u64,
}

impl<'a> Ran<'a> {
    fn of(placement: &'a VcpuPlacement, window_ns: u64) -> Option<Self> {
        let known = placement.residency_ns.iter();
        let known = known.fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let total_ns = known.max(placement.cpu_ns);
        let enough = total_ns.saturating_mul(100) >= window_ns.saturating_mul(JUDGED_PERCENT);
        (window_ns > 0 && total_ns > 0 && enough).then_some(Self {
            placement,
            total_ns,
        })
    }

    /// The unit on which the vCPU used [`LOCATED_PERCENT`] of its run time.
    fn mostly_in(&self, host: &HostTopology, level: fn(&HostPlace) -> Option<u32>) -> Option<u32> {
        let mut by_unit: BTreeMap<u32, u64> = BTreeMap::new();
        for (cpu, ns) in &self.placement.residency_ns {
            if let Some(unit) = host.place(*cpu).and_then(level) {
                let sum = by_unit.entry(unit).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        let needed = self.total_ns.saturating_mul(LOCATED_PERCENT);
        let (unit, _) = by_unit
            .into_iter()
            .find(|(_, ns)| ns.saturating_mul(100) >= needed)?;
        Some(unit)
    }
}

/// CPU time of a window in thousandths of a CPU; 0 without a window.
fn milli(ns: u64, window_ns: u64) -> u64 {
    ns.saturating_mul(1000).checked_div(window_ns).unwrap_or(0)
}

//! Sums over the vCPUs of a VM, which several families show.

use virtlens_model::snapshot::Vcpu;
use virtlens_model::vocab::KvmCounters;

/// Sums over all vCPUs of one VM, computed once per scrape: the vCPUs of a large node exceed the
/// L2 cache, and each family would read them again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VcpuSums {
    /// KVM's counters; one is absent if no vCPU has it.
    pub(crate) kvm: KvmCounters,
    /// Number of times that the scheduler put a vCPU on a CPU, where known.
    pub(crate) timeslices: Option<u64>,
    /// Number of times that a vCPU left its CPU although it was runnable, where known.
    pub(crate) involuntary_switches: Option<u64>,
}

impl VcpuSums {
    pub(crate) fn of(vcpus: &[Vcpu]) -> Self {
        let mut sums = Self::default();
        for vcpu in vcpus {
            sums.kvm = sums.kvm.with(&vcpu.kvm, u64::saturating_add);
            sums.timeslices = plus(sums.timeslices, vcpu.timeslices);
            sums.involuntary_switches = plus(sums.involuntary_switches, vcpu.involuntary_switches);
        }
        sums
    }
}

/// The sum of the known values.
fn plus(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
        (sum, more) => sum.or(more),
    }
}

#[cfg(test)]
mod tests {
    use virtlens_model::snapshot::Vcpu;
    use virtlens_model::vocab::{KvmCounters, KvmValues};

    use super::VcpuSums;

    fn vcpu(halt_wakeups: Option<u64>, timeslices: Option<u64>) -> Vcpu {
        Vcpu {
            kvm: KvmCounters::from(KvmValues {
                halt_wakeups,
                ..KvmValues::default()
            }),
            timeslices,
            ..Vcpu::default()
        }
    }

    #[test]
    fn sum_is_of_vcpus_that_have_the_value() {
        let vcpus = [
            vcpu(Some(2), None),
            vcpu(None, Some(5)),
            vcpu(Some(40), Some(7)),
        ];
        let sums = VcpuSums::of(&vcpus);
        assert_eq!(sums.kvm.halt_wakeups(), Some(42));
        assert_eq!(sums.timeslices, Some(12));
        assert_eq!(
            (sums.kvm.pf_fixed(), sums.involuntary_switches),
            (None, None)
        );
        assert_eq!(VcpuSums::of(&[]).timeslices, None);
    }
}

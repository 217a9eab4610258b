//! Converts KVM's counters of vCPUs and VMs.

use virtlens_abi as abi;
use virtlens_model::facts::{EndedVcpuFact, HaltsFact, VcpuFact, VcpuStats};
use virtlens_model::vocab::{
    ExitCounts, HaltPoll, Halts, KvmCounters, KvmValues, Mapped, Mmu, Owner, Polls, Yields,
};

use super::{known, owner};

/// Converts a vCPU.
pub(super) fn vcpu(record: &abi::record::VcpuRecord) -> VcpuFact {
    VcpuFact {
        id: record.id,
        index: (record.index != u32::MAX).then_some(record.index),
        stats: vcpu_stats(record),
        charged_ns: Some(record.placed_ns),
    }
}

/// Converts a vCPU whose thread has exited, if KVM's counters of it are known.
pub(crate) fn ended_vcpu(
    key: &abi::map::VcpuKey,
    record: &abi::record::VcpuRecord,
) -> Option<EndedVcpuFact> {
    let Owner::Vm(vm) = owner(key.owner) else {
        return None;
    };
    Some(EndedVcpuFact {
        vm,
        id: key.vcpu_id,
        stats: vcpu_stats(record)?,
    })
}

fn vcpu_stats(record: &abi::record::VcpuRecord) -> Option<VcpuStats> {
    // Every kernel has these counters, so an unknown one means that the structure was
    // freed.
    Some(VcpuStats {
        instance: record.instance,
        counters: KvmCounters::from(KvmValues {
            halt_poll_ns: Some(HaltPoll {
                success: known(record.halt_poll_success_ns)?,
                fail: known(record.halt_poll_fail_ns)?,
            }),
            halt_wait_ns: known(record.halt_wait_ns),
            exits: Some(ExitCounts::of(
                known(record.exits)?,
                [
                    known(record.io_exits)?,
                    known(record.mmio_exits)?,
                    known(record.halt_exits)?,
                    known(record.irq_exits)?,
                    known(record.irq_window_exits)?,
                    known(record.hypercalls)?,
                ],
            )),
            pf_fixed: Some(known(record.pf_fixed)?),
            pf_taken: known(record.pf_taken),
            halt_wakeups: known(record.halt_wakeups),
            halt_polls: Some(Polls {
                attempted: known(record.polls_attempted)?,
                successful: known(record.polls_successful)?,
                invalid: known(record.polls_invalid)?,
            }),
            yields: known(record.yields_attempted)
                .zip(known(record.yields_successful))
                .map(|(attempted, successful)| Yields {
                    attempted,
                    successful,
                }),
            preemptions_reported: known(record.preemptions_reported),
        }),
        preempted: record.preempted != 0,
    })
}

/// Converts KVM's counts of the page tables of a VM.
pub(super) fn mmu(stats: &abi::record::MmuStats) -> Mmu {
    let [small, large, huge] = stats.pages.map(known);
    let pages = || Some([small?, large?, huge?]);
    Mmu {
        mapped_bytes: pages().map(Mapped::of_pages),
        nx_splits: stats.nx_splits,
        tlb_flushes: stats.tlb_flushes,
    }
}

/// Converts histograms of a vCPU, unless they could not be read.
pub(super) fn halts(record: &abi::record::HaltsRecord) -> Option<HaltsFact> {
    let Owner::Vm(vm) = owner(record.owner) else {
        return None;
    };
    if record.counts.as_flattened().contains(&abi::UNKNOWN) {
        return None;
    }
    let [poll_success, poll_fail, wait] = record.counts;
    Some(HaltsFact {
        vm,
        vcpu_id: record.vcpu_id,
        instance: record.instance,
        halts: Halts {
            poll_success,
            poll_fail,
            wait,
        },
    })
}

//! Pinned VMs, and the agent's verdicts on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use virtlens::collect::{Collector, Options};
use virtlens_model::snapshot::{Snapshot, Topology};
use virtlens_model::vocab::MismatchKind;

use crate::process::set_affinity;
use crate::{Launch, Minivm, eventually, reader};

/// A collector with BPF attached.
pub fn agent() -> Collector {
    reader::collector_with(&Options {
        pcpu_series: true,
        ..reader::options()
    })
}

/// Starts a VM with this guest topology (in the format of `minivm --topology`). Its vCPUs
/// are halted and pinned in order to these CPUs.
pub fn pinned(topology: &str, pcpus: &[usize]) -> Minivm {
    let vm = Minivm::start(["--topology", topology]);
    pin(&vm, pcpus);
    vm
}

/// Like [`pinned`], for a prepared launch.
pub fn pinned_launch(launch: Launch, pcpus: &[usize]) -> Minivm {
    let vm = Minivm::start_launch(launch);
    pin(&vm, pcpus);
    vm
}

/// Pins the vCPUs in order, each to one CPU.
pub fn pin(vm: &Minivm, pcpus: &[usize]) {
    assert_eq!(vm.ready.vcpus.len(), pcpus.len(), "a CPU for each vCPU");
    for (vcpu, pcpu) in vm.ready.vcpus.iter().zip(pcpus) {
        set_affinity(vcpu.tid, &[*pcpu]);
    }
}

/// Topology of a VM at the last judgement.
pub fn topology(snapshot: &Snapshot, pid: u32) -> Arc<Topology> {
    let topology = &reader::vm(snapshot, pid).topology;
    Arc::clone(topology.as_ref().expect("every VM is judged"))
}

/// The checks that a judgement made now raises for a VM.
pub fn checks(agent: &mut Collector, vm: &Minivm) -> Vec<&'static str> {
    let snapshot = agent.collect_judged();
    let found = reader::vm(&snapshot, vm.pid()).findings.clone();
    let found = found.expect("it was there at the judgement before");
    found.iter().map(|one| one.check.name()).collect()
}

/// Topology of a VM by a judgement made now, once the agent knows all of its vCPUs: a
/// vCPU is found when it is first seen inside `KVM_RUN`.
pub fn judged(agent: &mut Collector, vm: &Minivm) -> Arc<Topology> {
    let vcpus = vm.ready.vcpus.len();
    eventually("the agent to find all vCPUs", || {
        let snapshot = agent.collect();
        let found = snapshot.vms.iter().find(|one| one.pid == vm.pid())?;
        let there = found.vcpus.iter().filter(|vcpu| vcpu.tid.is_some());
        (there.count() == vcpus).then_some(())
    });
    topology(&agent.collect_judged(), vm.pid())
}

/// A finding: its kind, the vCPUs, the pCPUs.
pub type Finding<'a> = (MismatchKind, &'a [u32], &'a str);

/// Fails unless these are all the findings, in this order.
#[track_caller]
pub fn assert_found(topology: &Topology, expected: &[Finding<'_>]) {
    let found: Vec<_> = topology
        .mismatches
        .iter()
        .map(|one| {
            let one = &one.mismatch;
            (one.kind, one.vcpus.clone(), one.pcpus.to_string())
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(kind, vcpus, pcpus)| (*kind, vcpus.to_vec(), (*pcpus).to_owned()))
        .collect();
    assert_eq!(found, expected, "{topology:#?}");
}

/// Fails unless a judgement made now has exactly these misplacements, and the doctor has
/// no other findings.
#[track_caller]
pub fn assert_judged(
    agent: &mut Collector,
    vm: &Minivm,
    expected: &[Finding<'_>],
) -> Arc<Topology> {
    let topology = judged(agent, vm);
    assert_found(&topology, expected);
    let kinds: BTreeSet<&str> = expected.iter().map(|(kind, ..)| kind.name()).collect();
    let checks: BTreeSet<&str> = checks(agent, vm).into_iter().collect();
    assert_eq!(checks, kinds, "{topology:#?}");
    topology
}

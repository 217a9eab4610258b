//! Loads the memory of a VM before it is recorded.
//!
//! Between two readings the caches and the TLB lose it, and a comparison waits for each part of
//! it in turn. Loads of which none needs the result of another overlap.

use std::hint::black_box;

use virtlens_model::snapshot::{Vcpu, Vm};

use crate::flat::Flat;

/// Values of 8 bytes in a cache line.
const LINE: usize = 8;

/// Loads most of what the VMs at a place and behind it have.
#[inline]
pub(crate) fn load_vms(vms: &[Vm], at: usize) {
    if let Some(vm) = vms.get(at) {
        load_vm(vm);
    }
    if let Some(vm) = vms.get(at + 1) {
        // The places of the rest.
        let topology = vm
            .topology
            .as_ref()
            .map(|topology| topology.interrupts.as_ptr());
        let memory = (vm.memory.guest_bytes, vm.memory.refault_bytes);
        black_box((
            topology,
            memory,
            vm.mmu.is_some(),
            vm.pressure.is_some(),
            vm.pid,
        ));
    }
}

#[inline]
fn load_vm(vm: &Vm) {
    let vcpus = vm.vcpus.iter().fold(0, |all, vcpu| all ^ load_vcpu(vcpu));
    let threads = vm.threads.iter().fold(0, |all, thread| all ^ thread.cpu_ns);
    let roles = vm.roles.iter().fold(0, |all, role| all ^ role.cpu_ns);
    let quotas = vm.quota.iter().chain(&vm.limits);
    let quotas = quotas.fold(0, |all, quota| all ^ quota.periods);
    let interrupts = vm.topology.as_ref().map_or(0, |topology| {
        let each_line = topology.interrupts.iter().step_by(2);
        each_line.fold(0, |all, one| all ^ one.vcpu)
    });
    black_box((vcpus, threads, roles, quotas, interrupts));
}

/// A field of each cache line.
#[inline]
fn load_vcpu(vcpu: &Vcpu) -> u64 {
    let numbers = vcpu
        .kvm
        .row()
        .iter()
        .step_by(LINE)
        .fold(0, |all, one| all ^ one);
    let optional = u32::from(vcpu.wait_ns.is_some()) ^ u32::from(vcpu.index.is_some());
    numbers ^ vcpu.cpu_ns ^ u64::from(vcpu.id ^ optional)
}

/// Loads a value.
#[inline]
pub(crate) fn load_flat(flat: &Flat) {
    let cells = flat
        .cells
        .iter()
        .step_by(LINE)
        .fold(0, |all, cell| all ^ cell);
    let means = flat
        .means
        .iter()
        .step_by(LINE)
        .fold(0, |all, mean| all ^ mean);
    let (watched, _) = flat.watched.as_chunks::<{ 8 * LINE }>();
    let watched = watched.iter().fold(0, |all, line| all ^ line[0]);
    black_box((cells, means, watched));
}

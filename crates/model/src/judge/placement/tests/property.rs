//! On any host, a VM that is placed as in its guest's topology raises nothing.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::{self, Index};

use super::{Guest, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::vocab::Role;
use crate::vocab::topology::synthetic::{Machine, machines};

/// Hosts with a spare CPU for the emulator.
fn machine_with_spare_core() -> impl Strategy<Value = Machine> {
    let suitable = machines()
        .into_iter()
        .filter(|machine| machine.cores() > 1)
        .collect::<Vec<_>>();
    sample::select(suitable)
}

/// A VM of `cores` guest cores with the host's threads per core, or one, pinned to host
/// cores starting at `first`, with its emulator pinned to the last core.
fn matching(machine: Machine, guest: Guest, first: u32) -> VmPlacement {
    let Guest(_, _, threads) = guest;
    let masks: Vec<String> = (0..guest.vcpus())
        .map(|id| machine.cpu(first + id / threads, id % threads).to_string())
        .collect();
    let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
    let emulator = machine.cpu(machine.cores() - 1, 0).to_string();
    vm("a", guest, &masks).helper(Role::Emulator, &emulator)
}

proptest! {
    #[test]
    fn vm_pinned_to_matching_topology_raises_nothing(
        machine in machine_with_spare_core(),
        cores in any::<Index>(),
        start in any::<Index>(),
        all_threads in any::<bool>(),
        ran in any::<bool>(),
    ) {
        let threads = if all_threads { machine.threads } else { 1 };
        let spare = machine.cores() - 1;
        let cores = 1 + u32::try_from(cores.index(spare as usize)).expect("few");
        // Starts at a cache into which the VM fits, or at the first CPU of the host.
        let starts: Vec<u32> = (0..spare)
            .step_by(machine.cores as usize)
            .filter(|first| cores <= machine.cores && first + cores <= spare)
            .collect();
        let first = if starts.is_empty() { 0 } else { *start.get(&starts) };
        let mut vm = matching(machine, Guest(1, cores, threads), first);
        if ran {
            let cpus: Vec<u32> = vm
                .vcpus
                .iter()
                .flat_map(|vcpu| vcpu.affinity.as_ref().expect("pinned").iter())
                .collect();
            vm = vm.ran_on(&cpus);
        }
        let judged = judge(&machine.host(), &[vm]).pop().expect("one");
        prop_assert_eq!(&judged.mismatches, &[], "{:?}", machine);
        prop_assert_eq!(judged.pinned_vcpus, cores * threads);
        if let Ok(pairs) = judged.pairs {
            prop_assert_eq!((pairs.split, pairs.shared), (0, 0));
            prop_assert_eq!(pairs.aligned, cores * (threads / 2));
        }
    }

    #[test]
    fn vm_with_topology_of_host_raises_nothing(machine in machine_with_spare_core()) {
        let cores = machine.cores() / machine.packages;
        let guest = Guest(machine.packages, cores, machine.threads);
        let mut vm = matching(machine, guest, 0);
        vm.helpers.clear();
        let judged = judge(&machine.host(), &[vm]).pop().expect("one");
        prop_assert_eq!(judged.mismatches, []);
    }

    #[test]
    fn any_placement_is_judged_within_bounds(
        machine in sample::select(machines()),
        masks in proptest::collection::vec((0u32..600, 0u32..4, 0u64..100), 1..24),
    ) {
        let vms: Vec<VmPlacement> = masks
            .chunks(4)
            .map(|masks| {
                let texts: Vec<String> = masks
                    .iter()
                    .map(|(first, more, _)| format!("{first}-{}", first + more))
                    .collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let mut vm = vm("a", Guest(1, 1, u32::try_from(masks.len()).expect("4")), &texts);
                for (index, (first, _, percent)) in masks.iter().enumerate() {
                    vm = vm.ran(index, &[(*first, *percent)]);
                }
                vm.memory(&[(0, 3), (7, 1)]).helper(Role::Vhost, "0-3")
            })
            .collect();
        let host = machine.host();
        let judged = judge(&host, &vms);
        prop_assert_eq!(judged.len(), vms.len());
        for (judged, vm) in judged.iter().zip(&vms) {
            for found in &judged.mismatches {
                prop_assert!(!found.vcpus.is_empty() && found.vcpus.is_sorted());
                let own = |id: &u32| vm.vcpus.iter().any(|vcpu| vcpu.id == *id);
                prop_assert!(found.vcpus.iter().all(own));
                prop_assert!(found.pcpus.is_subset(host.online()));
            }
        }
    }
}

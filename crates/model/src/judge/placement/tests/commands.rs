//! The commands in remedies follow the manual pages and end the mismatches.

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, proptest};
use proptest::sample;

use super::{Guest, set, vm};
use crate::judge::placement::judge;
use crate::judge::placement::types::VmPlacement;
use crate::judge::runtime::Runtime;
use crate::vocab::MismatchKind::{SmtShared, SmtSplit, VcpuOverlap};
use crate::vocab::topology::synthetic::machines;
use crate::vocab::{CpuSet, Role};

/// The commands of a remedy.
pub(super) fn commands(remedy: &str) -> Vec<&str> {
    let starts = [
        "virsh vcpupin",
        "virsh emulatorpin",
        "virsh iothreadpin",
        "taskset",
        "migratepages",
    ];
    let parts = remedy.split("; ").map(|part| {
        let start = part.rfind(": ").map_or(0, |colon| colon + 2);
        let command = &part[start..];
        command.split(" (").next().unwrap_or(command)
    });
    parts
        .filter(|part| starts.iter().any(|start| part.starts_with(start)))
        .collect()
}

/// Checks a command against its manual page, and carries out `vcpupin`.
fn carry_out(command: &str, vms: &mut [VmPlacement], online: &CpuSet) {
    let words: Vec<&str> = command.split(' ').collect();
    let is_list = |list: &str| list.parse::<CpuSet>().is_ok_and(|cpus| !cpus.is_empty());
    match words[..] {
        ["virsh", "vcpupin", domain, vcpu, list, "--live"] => {
            let vm = vms.iter_mut().find(|vm| &*vm.name == domain);
            let vcpu: u32 = vcpu.parse().expect("a number");
            let vcpus = &mut vm.expect("a domain").vcpus;
            let vcpu = vcpus.iter_mut().find(|one| one.number == vcpu);
            let cpus = match list {
                "r" => set(&online.to_string()),
                list => set(list),
            };
            vcpu.expect("a vCPU").affinity = Some(cpus);
        }
        ["virsh", "emulatorpin", _, list, "--live"] => assert!(is_list(list), "{command}"),
        ["virsh", "iothreadpin", _, id, list, "--live"] => {
            assert!(is_list(list) && id.parse::<u32>().is_ok(), "{command}");
        }
        ["taskset", "-pc", list, tid] => {
            assert!(is_list(list) && tid.parse::<u32>().is_ok(), "{command}");
        }
        ["migratepages", pid, from, to] => {
            assert!(
                is_list(from) && is_list(to) && pid.parse::<u32>().is_ok(),
                "{command}"
            );
        }
        _ => panic!("unknown command: {command}"),
    }
}

proptest! {
    /// All commands for all VMs, carried out together.
    #[test]
    fn commands_end_the_mismatches_of_pins(
        machine in sample::select(machines()),
        vms in vec((1u32..3, any::<bool>(), vec(any::<sample::Index>(), 4)), 1..4),
    ) {
        let threads = |two| if two && machine.threads > 1 { 2 } else { 1 };
        let cpus = machine.cpus() as usize;
        let mut vms: Vec<VmPlacement> = (0..).zip(&vms).map(|(index, (cores, two, places))| {
            let guest = Guest(1, *cores, threads(*two));
            let masks: Vec<String> = places.iter().map(|at| at.index(cpus).to_string()).collect();
            let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
            let name = format!("vm{index}");
            let vm = vm(&name, guest, &masks[..guest.vcpus() as usize]);
            let last = (machine.cpus() - 1).to_string();
            VmPlacement { runtime: Runtime::Libvirt, ..vm.helper(Role::Emulator, &last) }
        }).collect();
        let host = machine.host();
        let before = judge(&host, &vms);
        let remedies: Vec<&str> = before
            .iter()
            .flat_map(|one| one.mismatches.iter().map(|found| &*found.remedy))
            .collect();
        for command in remedies.iter().flat_map(|remedy| commands(remedy)) {
            carry_out(command, &mut vms, host.online());
        }
        let after = judge(&host, &vms);
        for (before, after) in before.iter().zip(&after) {
            let is_moved = before.mismatches.iter().all(|one| one.remedy.starts_with("pin "));
            let by_pins = [SmtSplit, SmtShared, VcpuOverlap];
            let left = after.mismatches.iter().find(|one| by_pins.contains(&one.kind));
            prop_assert!(!is_moved || left.is_none(), "{before:?} became {after:?}");
        }
    }
}

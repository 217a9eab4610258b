//! Pins that virsh sets and changes.

use std::thread::sleep;
use std::time::Duration;

use virtlens_model::snapshot::Vm;

use crate::agent::vm;
use crate::domain::Threads;
use crate::{Bench, DB, bench};

/// Lines of `virsh vcpupin`: one per vCPU with its number and its CPUs, which may be more
/// than are online.
fn vcpupin(bench: &Bench) -> Vec<String> {
    let text = bench.libvirt.virsh(&format!("vcpupin {DB}"));
    let cpus = |line: &str| Some(line.split_whitespace().nth(1)?.to_owned());
    text.lines().filter_map(cpus).collect()
}

fn affinity_of(vm: &Vm, tid: u32) -> String {
    let thread = vm.threads.iter().find(|one| one.tid == tid);
    let affinity = thread.and_then(|one| one.affinity.as_ref());
    affinity.expect("it is read").to_string()
}

fn vcpus(vm: &Vm) -> Vec<String> {
    let living = vm.vcpus.iter().filter(|vcpu| vcpu.tid.is_some());
    let affinity = living.map(|vcpu| vcpu.affinity.as_ref().expect("it is read").to_string());
    affinity.collect()
}

#[test]
fn vcpus_have_the_pins_of_virsh() {
    let mut bench = bench();
    let snapshot = bench.agent.read();
    // The third line belongs to the vCPU that is not plugged in.
    assert_eq!(vcpus(vm(&snapshot, DB)), vcpupin(&bench)[..2]);
    assert_eq!(vcpus(vm(&snapshot, DB)), ["0", "1"]);
}

#[test]
fn emulator_and_iothread_have_the_pins_of_the_domain() {
    let mut bench = bench();
    let threads = Threads::of(&bench.libvirt);
    let snapshot = bench.agent.read();
    let vm = vm(&snapshot, DB);
    assert_eq!(affinity_of(vm, threads.vmm), "1");
    assert_eq!(affinity_of(vm, threads.iothreads[0]), "0");
    for worker in threads.vhost {
        assert_eq!(affinity_of(vm, worker), "1", "vhost is the emulator's");
    }
}

#[test]
fn pins_changed_live_are_seen_by_the_next_reading() {
    let mut bench = bench();
    for (pin, expected) in [("0-1", "0-1"), ("0", "0"), ("1", "1")] {
        bench.libvirt.virsh(&format!("vcpupin {DB} 1 {pin} --live"));
        let snapshot = bench.agent.read();
        assert_eq!(vcpus(vm(&snapshot, DB))[1], expected);
        assert_eq!(vcpupin(&bench)[1], expected);
    }
    bench.assert_no_counter_fell();
}

/// The kernel's `kvm-nx-lpage-recovery`, a thread of the VMM, keeps the mask of the vCPU
/// that ran first. None of libvirt's pins changes that mask.
#[test]
fn helper_on_vcpu_ends_with_pins_of_emulator_and_iothread() {
    let mut bench = bench();
    let pin = |bench: &Bench, vcpu1: u32, emulator: u32, iothread: u32| {
        let virsh = |command: String| bench.libvirt.virsh(&command);
        virsh(format!("vcpupin {DB} 1 {vcpu1} --live"));
        virsh(format!("emulatorpin {DB} {emulator} --live"));
        virsh(format!("iothreadpin {DB} 1 {iothread} --live"));
    };
    let judge = |bench: &mut Bench| {
        let found = bench.agent.findings(DB, || sleep(Duration::from_secs(2)));
        found.contains(&"helper_on_vcpu")
    };
    let shared = judge(&mut bench);
    pin(&bench, 0, 1, 1);
    let apart = judge(&mut bench);
    assert!(shared, "emulator and iothread share the vCPUs' CPUs");
    assert!(!apart, "nothing shares CPU 0 with the vCPUs");
}

/// Runs the virsh commands in the remedy of a finding; returns whether the finding ended.
fn ends_by_remedy(bench: &mut Bench, check: &str) -> bool {
    let second = || sleep(Duration::from_secs(1));
    let found = bench.agent.judged(DB, second);
    let finding = found.iter().find(|one| one.check.name() == check);
    let remedy = &finding
        .unwrap_or_else(|| panic!("no {check}: {found:?}"))
        .remedy;
    let commands: Vec<&str> = remedy
        .split("virsh ")
        .skip(1)
        .filter_map(|text| text.split([';', '(']).next())
        .map(str::trim)
        .collect();
    assert!(!commands.is_empty(), "{remedy}");
    for command in commands {
        bench.libvirt.virsh(command);
    }
    !bench.agent.findings(DB, second).contains(&check)
}

#[test]
fn virsh_commands_of_remedy_end_vcpu_overlap() {
    let mut bench = bench();
    for pin in [
        "vcpupin {} 1 0",
        "emulatorpin {} 0-1",
        "iothreadpin {} 1 0-1",
    ] {
        bench
            .libvirt
            .virsh(&format!("{} --live", pin.replace("{}", DB)));
    }
    assert!(ends_by_remedy(&mut bench, "vcpu_overlap"));
    // Which pCPUs the remedy names depends on the cores that other VMs leave free.
    assert_ne!(vcpupin(&bench)[..2], ["0", "0"]);
}

#[test]
fn virsh_commands_of_remedy_end_helper_on_vcpu() {
    let mut bench = bench();
    for pin in ["vcpupin {} 1 0", "emulatorpin {} 0", "iothreadpin {} 1 1"] {
        bench
            .libvirt
            .virsh(&format!("{} --live", pin.replace("{}", DB)));
    }
    assert!(ends_by_remedy(&mut bench, "helper_on_vcpu"));
}

//! Masks, per-CPU values and bounds that grow with the number of CPUs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use virtlens::collect::Collector;
use virtlens_probe::facts::KernelFacts;
use virtlens_probe::plan::plan;
use virtlens_tests::process::set_affinity;
use virtlens_tests::seats::{agent, assert_found, judged, pinned};
use virtlens_tests::sysfs::{assert_is_sysfs, list};
use virtlens_tests::{Minivm, reader};

use crate::{last_online, online, possible};

/// Pages of a process's resident memory that the kernel may hold back per CPU
/// (`compute_batch_value`, `lib/percpu_counter.c`).
fn batch_pages(online_cpus: usize) -> usize {
    (online_cpus * 2).max(32)
}

#[test]
fn machine_is_wide() {
    let (online, possible) = (online().len(), possible().len());
    println!("{online} CPUs online, {possible} possible");
    assert!(possible >= 64, "{possible} possible CPUs");
}

#[test]
fn host_topology_equals_sysfs() {
    let mut agent = agent();
    let snapshot = agent.collect();
    assert_eq!(snapshot.node.cpus as usize, online().len());
    assert_is_sysfs(&snapshot.host);
}

#[test]
fn plan_sizes_masks_by_possible_and_bounds_by_online_cpus() {
    let (online, possible) = (online(), possible());
    let facts = KernelFacts::probe(Path::new("/"));
    assert_eq!(facts.online_cpus, online.len());
    assert_eq!(facts.possible_cpus, possible.len());
    let plan = plan(&facts);
    let highest = possible.last().expect("a CPU is possible");
    assert_eq!(plan.mask_words, *highest as usize / 64 + 1);
    let error = batch_pages(online.len()) * online.len() * 4096;
    println!(
        "{} words a mask, {} entries of residency, {error} B of resident memory unseen",
        plan.mask_words, plan.residency_entries
    );
    assert_eq!(plan.rss_error_bytes, error as u64);
    assert!(plan.residency_entries as usize >= 64 * possible.len());
}

/// CPUs that a thread may run on according to /proc.
fn allowed(pid: u32, tid: i32) -> BTreeSet<u32> {
    let path = format!("/proc/{pid}/task/{tid}/status");
    let status = fs::read_to_string(path).expect("the thread lives");
    let mut lines = status.lines();
    let listed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list(listed.expect("every thread has a mask"))
}

/// Fails unless the agent's masks of all vCPUs equal those in /proc.
#[track_caller]
fn assert_masks(agent: &mut Collector, vm: &Minivm) {
    let snapshot = agent.collect();
    let seen = &reader::vm(&snapshot, vm.pid()).vcpus;
    for vcpu in &vm.ready.vcpus {
        let tid = vcpu.tid.cast_unsigned();
        let one = seen.iter().find(|one| one.tid == Some(tid));
        let affinity = one.and_then(|one| one.affinity.as_ref());
        let affinity: BTreeSet<u32> = affinity.expect("it has a mask").iter().collect();
        assert_eq!(affinity, allowed(vm.pid(), vcpu.tid), "vCPU thread {tid}");
    }
}

#[test]
fn affinity_masks_equal_those_of_proc() {
    let vm = Minivm::start(["--vcpus", "4"]);
    let mut agent = agent();
    judged(&mut agent, &vm);
    assert_masks(&mut agent, &vm);

    let all: Vec<usize> = online().into_iter().map(|cpu| cpu as usize).collect();
    let every_other: Vec<usize> = all.iter().copied().step_by(2).collect();
    let last = last_online(1);
    let ends = vec![all[0], last[0]];
    for (vcpu, mask) in vm
        .ready
        .vcpus
        .iter()
        .zip([&all, &every_other, &last, &ends])
    {
        set_affinity(vcpu.tid, mask);
    }
    assert_masks(&mut agent, &vm);
}

#[test]
fn vcpus_pinned_to_last_cpus_are_placed_there() {
    let pcpus = last_online(4);
    let mut vm = pinned("cores=4", &pcpus);
    let mut agent = agent();
    vm.burn_vcpus("all", 20);
    let found = judged(&mut agent, &vm);
    assert_eq!(found.pinned_vcpus, 4);
    let snapshot = agent.collect();
    let mut vcpus: Vec<_> = reader::vm(&snapshot, vm.pid()).vcpus.iter().collect();
    vcpus.sort_by_key(|vcpu| vcpu.index);
    let on: Vec<Option<u32>> = vcpus.iter().map(|vcpu| vcpu.pcpu).collect();
    let wanted: Vec<Option<u32>> = pcpus.iter().map(|cpu| u32::try_from(*cpu).ok()).collect();
    assert_eq!(on, wanted);

    // Two vCPUs on the last CPU cause a finding that names the CPU.
    let last = *pcpus.last().expect("four CPUs");
    let twice = pinned("cores=2", &[last, last]);
    let found = judged(&mut agent, &twice);
    let overlap = virtlens_model::vocab::MismatchKind::VcpuOverlap;
    assert_found(&found, &[(overlap, &[0, 1], &last.to_string())]);
}
